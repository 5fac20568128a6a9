// The page of one experiment.

import { actions } from "./actions.js";
import { refreshBeside, showBeside, stepBeside } from "./beside.js";
import { atMostEvery, fetchHtml, fetchJson, follow, onKey, showGone, step, swap, withMarksShown } from "./core.js";
import { drawFigure, expectPlotly, sayDrawnBy, whenColoursChange, whenPrinted } from "./figures.js";
import { Linked } from "./linked.js";
import { marking } from "./marks.js";
import { Part } from "./part.js";
import { picking } from "./picks.js";
import { RunningNow } from "./running.js";
import { sharing } from "./share.js";
import { lookingAt, viewing } from "./view.js";

const root = document.getElementById("experiment");
const { namespace, name, tab } = root.dataset;
const page = `experiments/${namespace}/${name}`;
const data = `data/${page}`;

// --- the head

const head = document.getElementById("head");
let savedShare = null; // of the readings, as `why` says it
let running = 1; // trials, until the server tells

function showSavings() {
  const element = document.getElementById("saved-share");
  if (savedShare === null || !element) return;
  element.textContent = `saved about ${savedShare.toLocaleString("en", { style: "percent" })} of the readings`;
}

async function showHead() {
  swap(head, await fetchHtml(`${data}/head?${new URLSearchParams({ tab })}`).catch(() => head.shownHtml));
  showSavings();
}

/** Say why the experiment waits or failed, and what early stopping saved. */
async function explain() {
  if (head.querySelector(".state").dataset.state === "Succeeded" && !("earlyStopping" in root.dataset)) {
    document.getElementById("why").hidden = true; // nothing that the head does not say
    return;
  }
  const found = await fetchJson(`api/v1/namespaces/${namespace}/why/${name}`).catch(() => null);
  const shown = document.getElementById("why");
  if (!found) return;
  savedShare = found.savedShare;
  showSavings();
  const state = head.querySelector(".state").dataset.state;
  const waits = !["Succeeded", "Failed"].includes(state) && !running;
  shown.hidden = state === "Succeeded" || !(state === "Failed" || waits || found.remedies.length);
  if (shown.hidden) return;
  const list = (title, lines) => {
    if (!lines.length) return [];
    const items = document.createElement("ul");
    items.append(...lines.map((line) => Object.assign(document.createElement("li"), { textContent: withMarksShown(line) })));
    return [Object.assign(document.createElement("h3"), { textContent: title }), items];
  };
  const log = Object.assign(document.createElement("pre"), { textContent: withMarksShown(found.logTail.join("\n")), tabIndex: 0 });
  const details = document.createElement("details");
  details.open = shown.querySelector("details")?.open ?? (state === "Failed" || (waits && found.remedies.length > 0));
  details.append(
    Object.assign(document.createElement("summary"), { textContent: withMarksShown(found.verdict) }),
    ...list("What helps", found.remedies),
    ...list("What it rests on", found.findings),
    ...(found.logTail.length ? [log] : []),
  );
  shown.replaceChildren(details);
}

// --- figures

const PRINT_MILLISECONDS = 3000; // after which figures that are not seen are drawn, too, for a print
const figures = [...root.querySelectorAll("[data-figure]")];
const visible = new Set();
const chosen = (figure) => new URLSearchParams(
  [...new FormData(root.querySelector(`form[data-for="${figure}"]`) ?? undefined)].filter(([, value]) => value),
);

viewing(root);
lookingAt(figures);
let linked = null;
const open = (trial) => showBeside(namespace, trial);
const now = new RunningNow({ namespace, table: document.getElementById("trials"), strip: document.getElementById("now") });

async function draw(element) {
  const figure = element.dataset.figure;
  const asked = element.version === undefined ? null : version; // the first answer may have been fetched with the page
  element.drawing = true;
  const drawn = await drawFigure(element, `${data}/figures/${figure}?${element.dataset.question ?? chosen(figure)}`);
  element.drawing = false;
  if (complete && version !== asked && version > element.version) drawSoon(); // changed since
  if (drawn) linked?.drawn(element, drawn);
  if (drawn && figure === "history") now.drawn(element);
  if (drawn) sayDrawnBy(root.querySelector(`form[data-for="${figure}"]`), drawn.layout);
  if (drawn && element.on && !element.opens) {
    element.opens = true;
    element.on("plotly_click", ({ points }) => { // a mark that names a trial opens it
      const named = [points[0]?.customdata].flat()[0];
      if (/^[a-z0-9][a-z0-9.-]*$/.test(named ?? "")) open(named);
    });
  }
}

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) {
      visible.add(target);
      if (!target.drawing && (target.version === undefined || target.version < version)) draw(target);
    } else visible.delete(target);
  }
}, { rootMargin: "200px" });

root.addEventListener("change", (event) => {
  const form = event.target.closest("form[data-for]");
  if (form) draw(root.querySelector(`[data-figure="${form.dataset.for}"]`));
});
root.addEventListener("submit", (event) => { if (event.target.matches("form[data-for]")) event.preventDefault(); });

/** Draw the figures that were not seen yet, one after the other. */
async function drawRest() {
  for (const element of figures) if (element.version === undefined && !element.drawing) await draw(element);
}
whenPrinted(figures, drawRest);
addEventListener("load", () => setTimeout(drawRest, PRINT_MILLISECONDS));

let version = Number(root.dataset.version); // of the trials that the page shows; 0 until all are read
let complete = version > 0;
const drawSoon = atMostEvery(1000, () => {
  for (const element of visible) if (!(element.version >= version) && !element.drawing) draw(element);
});

// --- the table and the events

const table = document.getElementById("trials");
let part = null;
if (table) {
  part = new Part({
    element: table, form: document.getElementById("filters"), data: `${data}/table`, page, query: table.dataset.query,
    kept: { tab },
  });
  linked = new Linked({ part, root, open, figures });
  picking(table, "trial");
  stepBeside(namespace, table, step);
  if ("missing" in table.dataset) part.refresh();
}
const tableSoon = atMostEvery(1000, () => part?.refresh());

const events = document.getElementById("events");
root.querySelector("[data-events]")?.addEventListener("change", ({ target }) => { events.dataset.only = target.value; });
const eventsSoon = atMostEvery(2000, async () => {
  if (events) swap(events, await fetchHtml(`${data}/events`).catch(() => events.shownHtml));
});

// --- what happens

for (const element of figures) seen.observe(element);
if (tab === "analysis") requestAnimationFrame(() => setTimeout(expectPlotly)); // behind the first paint
whenColoursChange(() => visible.forEach(draw));
marking(root, { done: () => Promise.all([showHead(), part?.refresh(), refreshBeside(namespace)]) });
actions(root, { namespace, name, done: () => { showHead(); explain(); } });

sharing({ figures, draw, address: `api/v1/namespaces/${namespace}/experiments/${name}`, page });

const headSoon = atMostEvery(500, showHead);
const explainSoon = atMostEvery(5000, explain);
let known = "";

follow(`${data}/live`, {
  change: (change) => {
    const { state, reason, counts, trials } = change.experiment;
    for (const element of root.querySelectorAll("[data-trials]")) element.textContent = trials.toLocaleString();
    for (const element of root.querySelectorAll("[data-with-trials]")) element.hidden = !trials;
    ({ complete } = change);
    if (version !== change.version) { // else nothing is new since the server made the page
      version = change.version;
      headSoon();
      tableSoon();
      eventsSoon();
      if (complete) drawSoon();
    }
    running = counts.Running;
    const now = `${state} ${reason} ${counts.Failed} ${running > 0}`;
    if (known !== now) explainSoon();
    known = now;
  },
  running: ({ trials }) => now.show(trials),
  problem: (problem, source) => {
    if (problem.status !== 503) source.close(); // else it is asked again
    if (problem.status === 404) showGone(problem);
    else document.getElementById("connection").textContent = problem.detail;
  },
});

const tabs = [...root.querySelectorAll(".tabs a")];
tabs.forEach((link, i) => onKey(String(i + 1), link.textContent.toLowerCase(), () => link.click()));
