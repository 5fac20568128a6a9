// Tags, notes, project and favourite of an experiment or a trial: what has them is an element with data-marks.

import { onKey, say, sendJson } from "./core.js";

const addressOf = ({ kind, namespace, name }) => `api/v1/namespaces/${namespace}/${kind}/${name}`;
const marksOf = (element) => ({ tags: [], notes: "", project: "", favourite: false, ...JSON.parse(element.dataset.marks || "{}") });
const tagsOf = (text) => text.split(",").map((tag) => tag.trim()).filter(Boolean);

/** Make stars, buttons and keys of what is marked within an element work; `done` is called after each change. */
export function marking(root, { done }) {
  const dialog = document.getElementById("marks-dialog");
  const form = document.getElementById("marks");
  const problem = document.getElementById("marks-error");
  let marked = null; // the address of what the dialog is about, and its project

  function open(element) {
    const { tags, project, notes } = marksOf(element);
    const { kind, namespace, name } = element.dataset;
    marked = { address: addressOf(element.dataset), project, isExperiment: kind === "experiments" };
    document.getElementById("marks-name").textContent = `${namespace}/${name}`;
    problem.textContent = "";
    form.elements.tags.value = tags.join(", ");
    form.elements.project.value = project;
    form.elements.notes.value = notes;
    form.querySelector("[data-of-experiments]").hidden = !marked.isExperiment;
    dialog.showModal();
  }

  async function toggle(element) {
    const favourite = !marksOf(element).favourite;
    const { name } = element.dataset;
    try {
      await sendJson("PATCH", addressOf(element.dataset), { favourite });
      say(favourite ? `${name} is a favourite.` : `${name} is no favourite any more.`);
      await done();
    } catch (error) {
      say(error.message);
    }
  }

  document.addEventListener("click", (event) => {
    const element = event.target.closest("[data-marks]");
    if (!element) return;
    if (event.target.closest("[data-marks-of]")) open(element);
    if (event.target.closest("[data-star]")) toggle(element);
  });
  dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { tags, project, notes } = form.elements;
    const body = { tags: tagsOf(tags.value), notes: notes.value };
    if (marked.isExperiment && project.value !== marked.project) body.project = project.value; // that of the directory needs no annotation
    try {
      await sendJson("PATCH", marked.address, body);
      dialog.close();
      say("Saved.");
      await done();
    } catch (error) {
      problem.textContent = error.message;
    }
  });

  /** What the keys are about: the row with the focus, else what the page is about. */
  const meant = () => document.activeElement.closest?.("[data-marks]") ?? root.querySelector("[data-marks]:not(tr)");
  const withMeant = (run) => () => { const element = meant(); if (element) run(element); };
  onKey("t", "tags and notes", withMeant(open));
  onKey("s", "favourite or not", withMeant(toggle));
}
