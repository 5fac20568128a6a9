// The page of one trial: curves that grow while it runs, its log, and what changes with its state.

import { actions } from "./actions.js";
import { atMostEvery, fetchHtml, fetchJson, follow, onKey, runTime, showGone, showTimes } from "./core.js";
import { sayDrawnBy, showFigure, whenColoursChange } from "./figures.js";
import { LogView } from "./log.js";
import { marking } from "./marks.js";

const DRAW_MILLISECONDS = 200;
const MOST_READINGS = 4000; // of one curve here; beyond that the server redraws it, thinned

const root = document.getElementById("trial");
const { namespace, name } = root.dataset;
const data = `data/trials/${namespace}/${name}`;
const curves = root.querySelector("[data-curves]");
const log = new LogView(root.querySelector("[data-log]"), `api/v1/namespaces/${namespace}/trials/${name}/logs`);

// --- curves -----------------------------------------------------------------------------------------------------------

const charts = new Map(); // by metric: its elements, and readings that are not drawn yet
let cursor = null;
let listening = 0;

function chartOf(metric) {
  if (!charts.has(metric)) {
    let figure = [...curves.children].find((element) => element.dataset.metric === metric);
    if (!figure) {
      figure = Object.assign(document.createElement("figure"), { className: "curve unread" });
      figure.dataset.metric = metric;
      const caption = Object.assign(document.createElement("figcaption"), { className: "quiet" });
      caption.dataset.latest = "";
      figure.append(
        Object.assign(document.createElement("h3"), { textContent: metric }),
        Object.assign(document.createElement("div"), { className: "figure" }),
        caption,
      );
      curves.append(figure);
    }
    const [plot, latest] = [figure.querySelector(".figure"), figure.querySelector("[data-latest]")];
    charts.set(metric, { metric, figure, plot, latest, waiting: [] });
  }
  return charts.get(metric);
}

function look() {
  const chosen = (key) => root.querySelector(`[data-look="${key}"]`);
  return new URLSearchParams({ by: chosen("by").value, log: chosen("log").checked, smoothing: chosen("smoothing").value });
}

/** Draw all curves as the server has them, and continue from there. */
async function draw() {
  if (!curves) return; // it ended without a reading
  const mine = (listening += 1);
  let answer;
  try {
    answer = await fetchJson(`${data}/curves?${look()}`);
  } catch (error) {
    document.getElementById("connection").textContent = error.message;
    setTimeout(() => { if (mine === listening) draw(); }, 3000);
    return;
  }
  if (mine !== listening) return;
  cursor = answer.cursor;
  for (const { metric, figure } of answer.figures) {
    const chart = chartOf(metric);
    chart.waiting = [];
    if (figure.data.some(({ meta, y }) => meta?.kind === "readings" && y?.length !== 0)) { // else axes of nothing
      chart.figure.classList.remove("unread");
      await showFigure(chart.plot, figure);
      sayDrawnBy(root, figure.layout);
    }
    sayLatest(chart);
  }
  if (mine === listening) listen(mine);
}

function traceOf(plot, kind) {
  return plot.data?.findIndex((trace) => trace.meta?.kind === kind) ?? -1;
}

function sayLatest(chart, point = null) {
  const { by, unit } = chart.plot.layout?.meta ?? {};
  const readings = chart.plot.data?.[traceOf(chart.plot, "readings")];
  const last = readings?.x.at(-1);
  if (last === undefined && !point) { chart.latest.textContent = "No reading yet."; return; }
  const place = point ? (by === "time" ? point[1] / unit : by === "step" ? point[0] : (last ?? 0) + chart.waiting.length) : last;
  const value = point ? point[2] : readings.y.at(-1);
  const shown = value === null ? "no finite number" : String(Number.isSafeInteger(value) ? value : Number(value.toPrecision(6)));
  const where = by === "time" ? `after ${runTime(place * unit)}` : by === "step" ? `at step ${place}` : `reading ${place}`;
  const runs = root.querySelector("[data-part=head] .state").dataset.state === "Running";
  const at = runs ? `, at ${new Date().toLocaleTimeString()}` : "";
  chart.latest.textContent = `Latest: ${shown}, ${where}${at}`;
  for (const element of root.querySelectorAll("[data-value-of]")) { // one source: the head says what the curve shows
    if (element.dataset.valueOf !== chart.metric) continue;
    element.textContent = shown;
    element.classList.add("so-far");
    element.nextElementSibling.textContent = `so far, ${where}${at}`;
  }
}

/** Append what arrived to what is drawn; false where only a new picture is right. */
function append(chart) {
  const { plot, waiting } = chart;
  const { by, unit, smoothing, rug } = plot.layout.meta;
  const [readings, smooth, odd] = ["readings", "smoothed", "odd"].map((kind) => traceOf(plot, kind));
  const line = plot.data[readings];
  if (line.x.length + waiting.length > MOST_READINGS) return false;
  const [x, y, averages, strange] = [[], [], [], []];
  let last = line.x.at(-1) ?? -Infinity;
  const state = smooth < 0 ? null : plot.data[smooth].meta;
  for (const [step, seconds, value] of waiting) {
    const place = by === "step" ? step : by === "time" ? seconds / unit : Math.max(last, 0) + 1;
    if (place === null || (by === "time" && seconds === null) || place < last) return false;
    last = place;
    x.push(place);
    y.push(value);
    if (value === null) strange.push(place);
    if (!state) continue;
    if (value === null) { averages.push(null); continue; }
    state.last = smoothing * state.last + (1 - smoothing) * value;
    state.count += 1;
    averages.push(state.last / (1 - smoothing ** state.count));
  }
  chart.waiting = [];
  const update = { x: [x], y: [y] };
  const traces = [readings];
  if (state) { update.x.push(x); update.y.push(averages); traces.push(smooth); }
  if (strange.length && odd >= 0) {
    update.x.push(strange);
    update.y.push(strange.map(() => rug));
    traces.push(odd);
    plot.data[odd].showlegend = true;
  }
  globalThis.Plotly.extendTraces(plot, update, traces);
  return true;
}

const drawSoon = atMostEvery(1000, draw);

const appendSoon = atMostEvery(DRAW_MILLISECONDS, () => {
  for (const chart of charts.values()) {
    if (chart.waiting.length && !append(chart)) { drawSoon(); return; }
  }
});

function listen(mine) {
  const still = (source) => {
    if (mine === listening) return true;
    source.close();
    return false;
  };
  const source = follow(`${data}/live?since=${encodeURIComponent(cursor)}`, {
    readings: (news, from) => {
      if (!still(from)) return;
      if (news.before !== cursor) { from.close(); draw(); return; }
      cursor = news.cursor;
      for (const [metric, points] of Object.entries(news.metrics)) {
        if (!charts.get(metric)?.plot.data) { from.close(); draw(); return; }
        const chart = chartOf(metric);
        chart.waiting.push(...points);
        sayLatest(chart, points.at(-1));
      }
      appendSoon();
    },
    trial: ({ version }, from) => { if (still(from) && version !== root.dataset.version) showPartsSoon(); },
    end: (_, from) => from.close(),
    problem: (problem, from) => {
      from.close();
      if (problem.status === 404) showGone(problem);
      else document.getElementById("connection").textContent = problem.detail;
    },
  });
  stream?.close();
  stream = source;
}
let stream = null;

for (const control of root.querySelectorAll("[data-look]")) {
  control.addEventListener("input", () => {
    root.querySelector("[data-smoothing]").textContent = root.querySelector('[data-look="smoothing"]').value;
    redrawSoon();
  });
}
const redrawSoon = atMostEvery(150, draw);
whenColoursChange(draw);

// --- what changes with the state --------------------------------------------------------------------------------------

async function showParts() {
  let html;
  try { html = await fetchHtml(`${data}/parts`); } catch { return; }
  const fresh = new DOMParser().parseFromString(html, "text/html");
  for (const part of fresh.querySelectorAll("[data-part]")) {
    const shown = root.querySelector(`[data-part="${part.dataset.part}"]`);
    if (shown && shown.innerHTML !== part.innerHTML) shown.replaceChildren(...part.childNodes);
  }
  root.dataset.version = fresh.querySelector("[data-version]")?.dataset.version ?? "";
  showTimes(root);
  charts.forEach((chart) => sayLatest(chart));
  offerReplicas();
  startLog();
}
const showPartsSoon = atMostEvery(1000, showParts);

function offerReplicas() {
  const rows = [...root.querySelectorAll("[data-replica]")];
  log.offer(rows.map(({ dataset }) => ({ name: dataset.replica, containers: dataset.containers.split(" ").filter(Boolean) })));
}

function startLog() {
  if (log.isReading || log.ended) return;
  const waits = root.querySelector("[data-part=head] .state").dataset.state === "Pending";
  if (waits) log.say("The log begins when the trial runs.");
  else log.start();
}

// --- the trials beside it ---------------------------------------------------------------------------------------------

async function showNeighbours() {
  let found;
  try { found = await fetchJson(`${data}/neighbours`); } catch { return; }
  const link = (other, words, key) => {
    const element = document.createElement(other ? "a" : "span");
    if (other) Object.assign(element, { href: `trials/${namespace}/${other}`, title: `${other} (${key})` });
    else element.className = "quiet";
    element.textContent = words;
    return element;
  };
  const place = Object.assign(document.createElement("span"), {
    textContent: `Trial ${found.place.toLocaleString()} of ${found.total.toLocaleString()}`,
  });
  const previous = link(found.previous, "Previous", "[");
  const next = link(found.next, "Next", "]");
  root.querySelector("[data-beside]").replaceChildren(previous, place, next);
  onKey("[", "previous trial", () => { if (found.previous) previous.click(); });
  onKey("]", "next trial", () => { if (found.next) next.click(); });
}

marking(root, { done: showParts });
actions(root, { namespace, name, done: showPartsSoon });
offerReplicas();
startLog();
draw();
showNeighbours();
