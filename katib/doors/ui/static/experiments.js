// The list of experiments.

import { atMostEvery, fetchJson, follow, showTimes } from "./core.js";
import { marking } from "./marks.js";
import { Part } from "./part.js";
import { picking } from "./picks.js";

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
  showPicks();
  return true;
}

// --- the best so far, as a line in each row ---

const SIZE = [96, 24];
const AT_ONCE = 10; // rows of a question
const SVG = "http://www.w3.org/2000/svg";
const lines = new Map(); // id of the row -> [what it was drawn of, path]
let asking = false;

function drawLine(row) {
  const cell = row.querySelector(".spark");
  const path = lines.get(row.id)?.[1];
  if (!path || cell.querySelector("path")?.getAttribute("d") === path) return;
  const line = document.createElementNS(SVG, "svg");
  line.setAttribute("viewBox", `0 0 ${SIZE.join(" ")}`);
  line.setAttribute("aria-hidden", "true");
  line.append(document.createElementNS(SVG, "path"));
  line.firstChild.setAttribute("d", path);
  cell.replaceChildren(line);
}

/** Draw the lines that are known, and ask for the others: one question at a time, the rows from the top. */
async function drawLines() {
  const rows = [...element.querySelectorAll("tr[data-spark]")];
  rows.forEach(drawLine);
  const wanted = rows.filter((row) => lines.get(row.id)?.[0] !== row.dataset.spark && row.querySelector(".spark").offsetWidth);
  if (asking || !wanted.length) return;
  asking = true;
  const asked = wanted.slice(0, AT_ONCE).map((row) => [row.id, row.dataset.spark]);
  try {
    const found = await fetchJson(`data/list/sparks?${new URLSearchParams(asked.map(([id]) => ["of", id]))}`);
    for (const [id, drawn] of asked) lines.set(id, [drawn, found[id]]);
  } catch {
    for (const [id, drawn] of asked) lines.set(id, [drawn, lines.get(id)?.[1] ?? ""]); // the rest of the row says more
  }
  asking = false;
  drawLinesSoon();
}

const drawLinesSoon = atMostEvery(200, drawLines);
element.addEventListener("shown", drawLinesSoon);
matchMedia("(min-width: 40rem)").addEventListener("change", drawLinesSoon);
drawLinesSoon();

const showPicks = picking(element, "experiment");
marking(element, { done: () => part.refresh() });

// --- what changes ---

follow("data/list/live", {
  hello: () => part.refresh(), // what changed since the page was made, or while there was no connection
  rows: ({ rows, gone, other }) => {
    const known = Object.entries(rows).map(([id, html]) => showRow(id, html));
    const asked = ["text", "state", "sort", "tag"].some((name) => part.query.get(name));
    if (other || gone.length || asked || known.includes(false)) refreshSoon();
    drawLinesSoon();
  },
  problem: (problem) => { document.getElementById("connection").textContent = problem.detail; },
});
