// Figures of the server, drawn by Plotly in the colours of the page.

import { fetchJson } from "./core.js";
import { drawParallel } from "./parallel.js";

function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** The layout of the server with the page's colours and without the title, which the page shows itself. */
function fitted(layout) {
  const [text, line] = [colour("--text"), colour("--line")];
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line };
  const result = {
    ...layout,
    title: undefined,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { ...layout.font, color: text, family: "system-ui, sans-serif" },
    margin: { ...layout.margin, t: 40 },
    uirevision: "kept", // zoom and hidden traces survive an update
  };
  for (const key of Object.keys(layout)) {
    if (/^[xy]axis\d*$/.test(key)) result[key] = { ...layout[key], ...axis };
    if (/^scene\d*$/.test(key)) {
      const walls = { ...axis, backgroundcolor: "rgba(0,0,0,0)" };
      result[key] = merged(layout[key], { xaxis: walls, yaxis: walls, zaxis: walls });
    }
  }
  return dark() ? merged(result, layout.meta?.dark ?? {}) : result;
}

function dark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** A copy of an object with some of its fields, at any depth, replaced. */
function merged(base, changes) {
  const result = { ...base };
  for (const [key, value] of Object.entries(changes)) {
    const nested = value !== null && typeof value === "object" && !Array.isArray(value);
    result[key] = nested ? merged(base[key] ?? {}, value) : value;
  }
  return result;
}

const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };

/** Draw a figure of the server into an element, or say why there is none. Returns the answer, null when there is none. */
export async function drawFigure(element, address) {
  let figure;
  try {
    figure = await fetchJson(address);
  } catch (error) {
    if (!element.querySelector(".main-svg, .parallel")) showProblem(element, error.message); // the last one stays
    return null;
  }
  const layout = fitted(figure.layout);
  if (figure.data[0]?.type === "parcoords") {
    drawParallel(element, figure.data[0], layout);
  } else if (figure.data.some(({ type }) => type === "scatter3d") && !hasWebGL()) {
    globalThis.Plotly.purge(element);
    showProblem(element, "This browser draws no figures in three dimensions: WebGL is turned off or missing.");
  } else {
    element.querySelector(".problem")?.remove();
    giveRoom(element, layout);
    await globalThis.Plotly.react(element, figure.data, layout, CONFIG);
  }
  return figure;
}

/** Make room for a figure of several parts: as high as it says, and wider than a phone, which then scrolls. */
function giveRoom(element, layout) {
  const { height, meta } = layout;
  element.style.height = height ? `${height + 2}px` : "";
  if (meta?.least_width > element.clientWidth) layout.width = meta.least_width;
}

function showProblem(element, sentence) {
  element.replaceChildren(Object.assign(document.createElement("p"), { className: "problem", textContent: sentence }));
}

let webGL = null;

function hasWebGL() {
  webGL ??= document.createElement("canvas").getContext("webgl") !== null;
  return webGL;
}

/** Run a function when the system turns light or dark. */
export function whenColoursChange(run) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", run);
}
