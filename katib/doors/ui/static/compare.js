// Several experiments or trials side by side.

import { atMostEvery, fetchJson } from "./core.js";
import { drawFigure, whenColoursChange } from "./figures.js";

const root = document.getElementById("compare");
const question = new URLSearchParams(location.search);

function questionFor(kind, more) {
  const asked = new URLSearchParams(more);
  for (const name of question.getAll(kind)) if (name.trim()) asked.append(kind, name.trim());
  return asked;
}

const history = root.querySelector("[data-history]");
const curves = root.querySelector("[data-trial-curves]");
const chosen = (key) => root.querySelector(`[data-look="${key}"]`);

function draw() {
  if (history) {
    const by = root.querySelector("[data-history-by]").value;
    drawFigure(history, `data/compare/history?${questionFor("experiment", { by })}`);
  }
  if (curves) {
    const look = { metric: chosen("metric").value, by: chosen("by").value, log: chosen("log").checked, smoothing: chosen("smoothing").value };
    drawFigure(curves, `data/compare/curves?${questionFor("trial", look)}`);
    root.querySelector("[data-smoothing]").textContent = look.smoothing;
  }
}

const drawSoon = atMostEvery(150, draw);
for (const control of root.querySelectorAll("[data-history-by], [data-look]")) control.addEventListener("input", drawSoon);
whenColoursChange(draw);
draw();

// Trials by a part of their name: there may be 100,000, so the server looks.
const field = root.querySelector("[data-find-trial]");
const offered = document.getElementById("known-trials");
const offer = atMostEvery(250, async () => {
  const search = field.value.trim();
  if (!search) return;
  const names = await fetchJson(`data/compare/trials?${new URLSearchParams({ search })}`).catch(() => []);
  offered.replaceChildren(...names.map((name) => new Option(name, name)));
});
field.addEventListener("input", offer);
