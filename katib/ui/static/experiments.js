// The list of experiments.

import { atMostEvery, follow, showTimes } from "./core.js";
import { Part } from "./part.js";

const element = document.getElementById("list");
const form = document.getElementById("filters");
const part = new Part({ element, form, data: "data/list", page: "./", query: location.search });
const refreshSoon = atMostEvery(1000, () => part.refresh());

function showRow(id, html) {
  const shown = document.getElementById(id);
  if (!shown) return false;
  const template = document.createElement("template");
  template.innerHTML = html;
  const row = template.content.querySelector("tr");
  const focused = shown.contains(document.activeElement);
  shown.replaceWith(row);
  showTimes(row);
  if (focused) row.querySelector("a.row").focus({ preventScroll: true });
  element.shownHtml = null;
  return true;
}

follow("data/list/live", {
  hello: () => part.refresh(), // what changed since the page was made, or while there was no connection
  rows: ({ rows, gone, other }) => {
    const known = Object.entries(rows).map(([id, html]) => showRow(id, html));
    const asked = ["text", "state", "sort"].some((name) => part.query.get(name));
    if (other || gone.length || asked || known.includes(false)) refreshSoon();
  },
  problem: (problem) => { document.getElementById("connection").textContent = problem.detail; },
}, { whileSeen: true });
