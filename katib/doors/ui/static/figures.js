// Figures of the server, drawn by Plotly in the colours of the page.

import { drawParallel } from "./parallel.js";
import { sketch } from "./sketch.js";

let loading = null;

/** Have Plotly read in while a figure is asked for: that takes as long as the server's answer. */
export function expectPlotly() {
  plotly().catch(() => {}); // shown where a figure is drawn
}

/** Plotly, fetched when a figure is drawn first: a page is there before it. */
function plotly() {
  if (globalThis.Plotly) return Promise.resolve(globalThis.Plotly);
  loading ??= new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement("script"), { src: `${document.body.dataset.assets}/plotly.js` });
    script.onload = () => resolve(globalThis.Plotly);
    script.onerror = () => { loading = null; reject(new Error("the part that draws figures could not be loaded")); };
    document.head.append(script);
  });
  return loading;
}

const DARK = matchMedia("(prefers-color-scheme: dark)");

function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** On a dark page the blue of most marks is too dark. */
function coloured(data) {
  return DARK.matches ? JSON.parse(JSON.stringify(data).replaceAll("#0072B2", "#5B9BFF")) : data;
}

/** The note below a figure in lines that fit: 6 pixels a character, 14 a line. */
function withNote(layout, width) {
  const note = layout.annotations?.find(({ name }) => name === "note");
  if (!note) return layout;
  const lines = [""];
  for (const word of note.text.replaceAll("<br>", " ").split(" ")) {
    if (lines.at(-1) && (lines.at(-1).length + word.length) * 6 > width - 80) lines.push("");
    lines[lines.length - 1] += (lines.at(-1) && " ") + word;
  }
  const annotations = layout.annotations.map((other) => (other === note ? { ...note, text: lines.join("<br>") } : other));
  return { ...layout, annotations, margin: { ...layout.margin, b: 62 + 14 * lines.length } };
}

/** The layout of the server with the page's colours and without the title, which the page shows itself. */
function fitted(given) {
  const layout = DARK.matches ? merged(given, given.meta?.dark ?? {}) : given;
  const [text, line, quiet] = [colour("--text"), colour("--line"), colour("--quiet")];
  const axis = { gridcolor: line, zeroline: false, linecolor: line };
  const result = {
    ...layout,
    title: undefined,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { ...layout.font, color: text, family: "system-ui, sans-serif" },
    margin: { ...layout.margin, t: 40 },
    modebar: { orientation: "v", bgcolor: "rgba(0,0,0,0)", color: quiet, activecolor: text }, // beside the legend, not over it
    uirevision: "kept", // zoom and hidden traces survive an update
  };
  for (const key of Object.keys(layout)) {
    if (/^[xy]axis\d*$/.test(key)) result[key] = { ...layout[key], ...axis };
    if (/^scene\d*$/.test(key)) {
      const walls = { ...axis, backgroundcolor: "rgba(0,0,0,0)" };
      result[key] = merged(layout[key], { xaxis: walls, yaxis: walls, zaxis: walls });
    }
  }
  return result;
}

/** One object over another, at every depth. */
function merged(base, changes) {
  const result = { ...base };
  for (const [key, value] of Object.entries(changes)) {
    const deep = value !== null && typeof value === "object" && !Array.isArray(value);
    result[key] = deep ? merged(base[key] ?? {}, value) : value;
  }
  return result;
}

const BROAD = 560; // pixels of a figure that do not fit beside another one

/** Whether a figure takes the width of the page, where figures stand in two columns. */
export const isBroad = ({ meta, height }) => Math.max(meta?.least_width ?? 0, height ?? 0) > BROAD;

const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
const NARROW = matchMedia("(max-width: 40rem)"); // there the toolbar would stand over the legend, and fingers zoom

/**
 * Draw a figure of the server into an element, or say why there is none. Returns the answer, null when there is none.
 * The element's `version` says of what state of the trials it is.
 */
export async function drawFigure(element, address) {
  let figure;
  try {
    const response = await fetch(address, { headers: { accept: "application/json" } });
    figure = await response.json();
    if (!response.ok) throw new Error(figure.detail ?? `the server answered ${response.status}`);
    element.version = Number(response.headers.get("x-katib-version") ?? 0);
    element.classList.toggle("impossible", Boolean(figure.obstacle));
    if (figure.obstacle) {
      showProblem(element, figure.obstacle);
      return null;
    }
    await showFigure(element, figure);
  } catch (error) {
    if (!element.querySelector(".main-svg, .parallel")) showProblem(element, error.message); // the last one stays
    return null;
  }
  return figure;
}

/** Say beside the choice of an axis what is drawn, where the programs do not report what was chosen. */
export function sayDrawnBy(area, layout) {
  const select = area?.querySelector('select[name="by"], select[data-look="by"]');
  const by = layout.meta?.by;
  if (!select || !by) return;
  const words = by === select.value ? "" : `no ${select.value}s reported: drawn by ${by}`;
  const said = area.querySelector("[data-drawn-by]");
  if (said.textContent !== words) said.textContent = words;
}

/** Draw a figure that is here already. */
export async function showFigure(element, { data, layout }) {
  element.closest(".analysis")?.classList.toggle("broad", isBroad(layout));
  const shown = fitted(withNote(layout, element.clientWidth));
  if (data[0]?.type === "parcoords") {
    drawParallel(element, data[0], shown);
    return;
  }
  const [marks, room] = [coloured(data), () => giveRoom(element, shown)];
  if (!globalThis.Plotly && !element.data) {
    room();
    if (sketch(element, marks, shown)) await new Promise((done) => requestAnimationFrame(() => setTimeout(done))); // painted
  }
  const Plotly = await plotly();
  if (data.some(({ type }) => type === "scatter3d") && !hasWebGL()) {
    showProblem(element, "This browser draws no figures in three dimensions: WebGL is turned off or missing.");
    return;
  }
  if (!element.data) element.replaceChildren(); // what was said in its place
  room();
  await Plotly.react(element, marks, shown, { ...CONFIG, displayModeBar: NARROW.matches ? false : "hover" });
  if (element.scrollWidth > element.clientWidth) element.tabIndex = 0; // keys scroll it
  else element.removeAttribute("tabindex");
}

/** Make room for a figure of several parts: as high as it says, and wider than a phone, which then scrolls. */
function giveRoom(element, layout) {
  element.style.height = layout.height ? `${layout.height + 2}px` : "";
  if (layout.meta?.least_width > element.clientWidth) layout.width = layout.meta.least_width;
}

function showProblem(element, sentence) {
  if (element.data) globalThis.Plotly.purge(element);
  element.replaceChildren(Object.assign(document.createElement("p"), { className: "problem", textContent: sentence }));
}

let webGL = null;

function hasWebGL() {
  webGL ??= document.createElement("canvas").getContext("webgl") !== null;
  return webGL;
}

/** Run a function when the system turns light or dark. */
export function whenColoursChange(run) {
  DARK.addEventListener("change", run);
}
