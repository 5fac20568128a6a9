// The menu Share: the link of what is seen, a picture of a figure, and the views that are saved with an experiment.

import { copyText, onKey, say, sendJson } from "./core.js";
import { savePicture } from "./figures.js";

const made = (tag, properties) => Object.assign(document.createElement(tag), properties);

/** Make the menu work; `address` is of the experiment in the API and `page` that of its page: without them it has no views. */
export function sharing({ figures, draw, address, page }) {
  const menu = document.getElementById("share");
  const pictures = menu.querySelector("[data-share-pictures]");
  const select = pictures.querySelector("select");
  const form = document.getElementById("save-view");
  const list = menu.querySelector("[data-views]");
  let views = JSON.parse(list?.dataset.views ?? "{}");

  menu.querySelector("[data-share-link]").addEventListener("click", async () => {
    await copyText(location.href).then(() => say("The link is copied."), () => say("The browser did not let the page copy."));
    menu.open = false;
  });
  menu.addEventListener("toggle", () => {
    const drawable = figures.filter((element) => !element.classList.contains("impossible"));
    select.replaceChildren(...drawable.map((element) => new Option(element.ariaLabel, figures.indexOf(element))));
    pictures.hidden = !drawable.length;
  });
  pictures.querySelector("button").addEventListener("click", async () => {
    const element = figures[select.value];
    if (!element.figure) await draw(element);
    if (element.figure) await savePicture(element, element.figure);
  });

  function show() {
    list.replaceChildren(...Object.entries(views).map(([name, query]) => {
      const remove = made("button", { type: "button", className: "plain", textContent: "✕", ariaLabel: `Remove the view ${name}`, title: "Remove" });
      remove.addEventListener("click", () => save(name, "", "Removed."));
      const item = made("li");
      item.append(made("a", { href: `${page}?${query}`, textContent: name }), " ", remove);
      return item;
    }));
  }
  async function save(name, query, said) {
    try {
      await sendJson("PATCH", address, { views: { [name]: query } });
      views = Object.fromEntries(Object.entries({ ...views, [name]: query }).filter(([, one]) => one));
      form.reset();
      say(said);
    } catch (error) { document.getElementById("view-error").textContent = error.message; }
    show();
    form.elements.view.focus();
  }
  form?.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = form.elements.view.value.trim();
    document.getElementById("view-error").textContent = name ? "" : "Give it a name.";
    if (name) save(name, location.search.slice(1) || "tab=overview", "Saved with the experiment.");
  });
  if (list) show();
  onKey("s", "share", () => { menu.open = true; menu.querySelector("button").focus(); });
}
