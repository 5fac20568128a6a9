// Several experiments or trials side by side.

import { atMostEvery, fetchHtml, onKey } from "./core.js";
import { drawFigure, whenColoursChange } from "./figures.js";
import { sharing } from "./share.js";
import { remember, remembered, lookingAt, viewing } from "./view.js";

const root = document.getElementById("compare");
const [history, curves] = ["history", "curves"].map((name) => root.querySelector(`[data-figure="${name}"]`));
const chosen = (key) => root.querySelector(`[data-view="${key}"]`);

function questionFor(kind, more) {
  const asked = new URLSearchParams({ ...more, group: root.querySelector(`[data-group="${kind}_group"]`)?.value ?? "" });
  for (const name of remembered(kind)) if (name.trim()) asked.append(kind, name.trim());
  return asked;
}

function draw() {
  if (history) drawFigure(history, `data/compare/history?${questionFor("experiment", { by: chosen("by").value })}`);
  if (!curves) return;
  const look = { metric: chosen("metric").value, by: chosen("along").value, log: chosen("log").checked, smoothing: chosen("smoothing").value };
  drawFigure(curves, `data/compare/curves?${questionFor("trial", look)}`);
  root.querySelector("[data-smoothing]").textContent = look.smoothing;
}

viewing(root);
const figures = [history, curves].filter(Boolean);
lookingAt(figures);
if (figures.length) sharing({ figures, draw });
const drawSoon = atMostEvery(150, draw);
for (const control of root.querySelectorAll(".toolbar [data-view]")) control.addEventListener("input", drawSoon);
for (const select of root.querySelectorAll("[data-group]")) {
  select.addEventListener("change", () => { // the heads of the columns show the colours of the groups
    remember(select.dataset.group, select.value ? [select.value] : []);
    sessionStorage.setItem("focus", select.dataset.group);
    location.reload();
  });
  if (sessionStorage.getItem("focus") === select.dataset.group) select.focus();
}
sessionStorage.removeItem("focus");
whenColoursChange(draw);
draw();

// --- the picker: what is ticked stays while other things are searched for

const picker = document.getElementById("picker");
const form = document.getElementById("pick");
const [field, kept, found] = ["[data-search]", "[data-kept]", "[data-found]"].map((one) => form.querySelector(one));
const open = () => { picker.open = true; field.focus(); field.select(); };
let asked = "";

async function find() {
  const text = asked = field.value.trim();
  const question = new URLSearchParams([["text", text], ...remembered("experiment").map((name) => ["experiment", name])]);
  const html = await fetchHtml(`data/compare/found?${question}`).catch(() => "");
  if (text !== asked) return;
  for (const box of found.querySelectorAll("input:checked")) kept.append(box.parentElement);
  found.innerHTML = html;
  const known = new Set([...kept.querySelectorAll("input")].map(({ name, value }) => `${name} ${value}`));
  for (const box of found.querySelectorAll("input")) if (known.has(`${box.name} ${box.value}`)) box.parentElement.remove();
  form.querySelector("[data-tally]").textContent = `${found.querySelectorAll("input").length} found`;
}

field.addEventListener("input", atMostEvery(250, find));
form.querySelector("[data-tick-all]").addEventListener("click", () => {
  for (const box of found.querySelectorAll("input")) box.checked = true;
});
form.addEventListener("submit", (event) => { // the choices of the page stay
  event.preventDefault();
  const next = new URLSearchParams([...new URLSearchParams(location.search)].filter(([key]) => !["experiment", "trial"].includes(key)));
  for (const [key, value] of new FormData(form)) next.append(key, value);
  location.search = next;
});
picker.addEventListener("toggle", () => { if (picker.open) field.focus(); });
onKey("/", "search for more to compare", open);
onKey("a", "add to the comparison", open);
if (picker.open) field.focus();
