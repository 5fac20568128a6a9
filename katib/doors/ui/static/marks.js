// Tags and notes of an experiment or a trial: what has them is an element with data-marks.

import { onKey, say, sendJson } from "./core.js";

const addressOf = ({ kind, namespace, name }) => `api/v1/namespaces/${namespace}/${kind}/${name}`;
const marksOf = (element) => ({ tags: [], notes: "", ...JSON.parse(element.dataset.marks || "{}") });
const tagsOf = (text) => text.split(",").map((tag) => tag.trim()).filter(Boolean);

/** Make buttons and keys of what is marked within an element work; `done` is called after each change. */
export function marking(root, { done }) {
  const dialog = document.getElementById("marks-dialog");
  const form = document.getElementById("marks");
  const problem = document.getElementById("marks-error");
  let address = ""; // of what the dialog is about
  let opener = ""; // id of the element that had the focus

  function open(element) {
    const { tags, notes } = marksOf(element);
    const { namespace, name } = element.dataset;
    address = addressOf(element.dataset);
    document.getElementById("marks-name").textContent = `${namespace}/${name}`;
    problem.textContent = "";
    form.elements.tags.value = tags.join(", ");
    form.elements.notes.value = notes;
    opener = document.activeElement.id;
    dialog.showModal();
  }
  dialog.addEventListener("close", () => document.getElementById(opener)?.focus({ preventScroll: true })); // its row may be new

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-marks-of]")) open(event.target.closest("[data-marks]"));
  });
  dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { tags, notes } = form.elements;
    try {
      await sendJson("PATCH", address, { tags: tagsOf(tags.value), notes: notes.value });
      dialog.close();
      say("Saved.");
      await done();
    } catch (error) {
      problem.textContent = error.message;
    }
  });

  onKey("t", "tags and notes", () => { // of the row with the focus, else of what the page is about
    const element = document.activeElement.closest?.("[data-marks]") ?? root.querySelector("[data-marks]:not(tr)");
    if (element) open(element);
  });
}
