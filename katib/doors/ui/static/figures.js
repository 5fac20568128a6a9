// Figures of the server in the colours of the page: those of the first screen on a canvas, the others by Plotly.

import { canDraw, chartOf, drawChart } from "./chart.js";
import { drawParallel, highlight, plain, selectLines } from "./parallel.js";

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
const OWN = new Set(["history", "pareto", "hypervolume", "curve", "curves"]); // figures of points and lines that are drawn without Plotly
let printing = false;
const isDark = () => DARK.matches && !printing;

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
  return isDark() ? JSON.parse(JSON.stringify(data).replaceAll("#0072B2", "#5B9BFF")) : data;
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
  const layout = isDark() ? merged(given, given.meta?.dark ?? {}) : given;
  const [text, line, quiet] = [colour("--text"), colour("--line"), colour("--quiet")];
  const axis = { gridcolor: line, zeroline: false, linecolor: line };
  const result = {
    ...layout,
    title: undefined,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { ...layout.font, color: text, family: "system-ui, sans-serif" },
    margin: { ...layout.margin, t: 40, b: (layout.margin?.b ?? 60) + TOOLS },
    modebar: { orientation: "v", bgcolor: "rgba(0,0,0,0)", color: quiet, activecolor: text }, // beside the legend, not over it
    uirevision: JSON.stringify(given.look ?? {}), // zoom and hidden traces survive an update
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

const CONFIG = { responsive: true, displaylogo: false, doubleClick: "reset", modeBarButtonsToRemove: ["select2d", "lasso2d", "toImage", "autoScale2d"] };
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
    if (!element.querySelector(".main-svg, .parallel, .chart")) showProblem(element, error.message); // the last one stays
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

const TOOLS = 28; // pixels below a figure
const BEYOND = "beyond the axis"; // in the sentence of a note that the chip replaces

/** What a reader chose: a layout with another scale, or with all values. */
function looked(layout, look) {
  const result = { ...layout, look };
  const hidden = beyond(layout, look);
  for (const [i, { axes, scale, views }] of (layout.meta?.values ?? []).entries()) {
    const chosen = look.scales?.[i] in views ? look.scales[i] : scale;
    if (chosen === scale && !look.all) continue;
    const range = (!look.all && views[chosen]?.range) || undefined;
    for (const axis of axes) result[axis] = { ...layout[axis], type: chosen, range, autorange: !range, ...(chosen !== scale && { dtick: undefined }), ...(chosen === "log" && { exponentformat: "power" }) };
  }
  const rest = (note) => ({ ...note, text: note.text.replaceAll("<br>", " ").split(". ").filter((sentence) => !sentence.includes(BEYOND)).join(". ") });
  result.annotations = layout.annotations?.map((note) => (note.name === "note" ? rest(note) : note)).filter(({ text }) => text);
  return { layout: result, hidden };
}

/** The number of values beyond the axes. */
function beyond({ meta = {} }, { scales, all }) {
  const counts = [...(meta.values ?? []).map(({ scale, views }, i) => (views[scales?.[i]] ?? views[scale])?.beyond ?? 0), ...(Array.isArray(meta.axes) ? meta.axes : []).map((axis) => axis.beyond ?? 0)];
  return all ? 0 : counts.reduce((sum, count) => sum + count, 0);
}

/** The buttons below a figure: all values, another scale, an image. */
function showTools(element, figure) {
  const { layout } = figure;
  const look = element.look;
  const again = (change) => {
    element.look = { ...look, ...change };
    element.dispatchEvent(new CustomEvent("look"));
    showFigure(element, figure);
  };
  const tool = (text, title, run) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: text, title });
    button.addEventListener("click", run);
    return button;
  };
  const [hidden, count] = [beyond(layout, look), beyond(layout, { ...look, all: false })];
  const words = `${count.toLocaleString("en")} beyond`;
  const bar = Object.assign(document.createElement("div"), { className: "tools" });
  if (hidden) bar.append(tool(`${words} · show`, "Values far from most others are beyond the axis", () => again({ all: true })));
  else if (count) bar.append(tool("all shown · hide outliers", `${words} the axis otherwise`, () => again({ all: false })));
  const values = [...(layout.meta?.values ?? []).entries()].filter(([, { views }]) => "log" in views);
  if (values.length > 2) bar.append(scaleMenu(element, values, again));
  else for (const [i, { axes, scale }] of values) {
    const other = (look.scales?.[i] ?? scale) === "log" ? "linear" : "log";
    const words = other === "log" ? "a logarithmic" : "a linear";
    bar.append(tool(values.length > 1 ? `${other} ${axes[0][0]}` : other, `Show the values on ${words} axis`, () => again({ scales: { ...look.scales, [i]: other } })));
  }
  bar.append(tool("PNG", "Save the figure as an image", () => savePicture(element, figure)));
  const nameOf = (control) => control.ariaLabel || control.textContent;
  const focused = element.querySelector(":scope > .tools :focus");
  element.querySelector(":scope > .tools")?.remove();
  element.append(bar);
  if (focused) ([...bar.querySelectorAll("button, input, summary")].find((one) => nameOf(one) === nameOf(focused)) ?? bar.querySelector("button")).focus();
}

/** A menu of the axes that can be logarithmic, of a figure with several. */
function scaleMenu(element, values, again) {
  const menu = Object.assign(document.createElement("details"), { className: "menu", open: element.querySelector(":scope > .tools details")?.open ?? false });
  const fields = document.createElement("fieldset");
  fields.append(Object.assign(document.createElement("legend"), { className: "hidden", textContent: "Logarithmic axes" }));
  for (const [i, { name, scale }] of values) {
    const label = document.createElement("label");
    const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: (element.look.scales?.[i] ?? scale) === "log", ariaLabel: `${name} logarithmic` });
    box.addEventListener("change", (event) => {
      event.stopPropagation();
      again({ scales: { ...element.look.scales, [i]: box.checked ? "log" : "linear" } });
    });
    label.append(box, ` log ${name}`);
    fields.append(label);
  }
  menu.append(Object.assign(document.createElement("summary"), { textContent: "Scales" }), fields);
  return menu;
}

/** Save an image of a figure, as it is shown. */
export async function savePicture(element, { layout }) {
  const title = layout.title?.text ?? "figure";
  const save = (address) => Object.assign(document.createElement("a"), { href: address, download: `${plain(title).replaceAll(/[^\w.-]+/g, "-")}.png` }).click();
  const [back, scale, head] = [getComputedStyle(element).backgroundColor, 2, 30];
  if (element.data) {
    const given = { ...element.layout, paper_bgcolor: back, title: { text: title }, width: element.clientWidth, height: element.clientHeight };
    save(await globalThis.Plotly.toImage({ data: element.data, layout: given }, { format: "png", scale, width: given.width, height: given.height }));
    return;
  }
  const box = element.getBoundingClientRect();
  const canvas = Object.assign(document.createElement("canvas"), { width: box.width * scale, height: (box.height - TOOLS + head) * scale });
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.fillStyle = back;
  pen.fillRect(0, 0, box.width, box.height + head);
  [pen.fillStyle, pen.font] = [getComputedStyle(element).color, "600 14px system-ui, sans-serif"];
  pen.fillText(plain(title), 14, 20);
  for (const part of element.querySelectorAll("canvas, svg")) {
    const at = part.getBoundingClientRect();
    pen.drawImage(part.matches("svg") ? await imageOf(part) : part, at.left - box.left, at.top - box.top + head, at.width, at.height);
  }
  save(canvas.toDataURL("image/png"));
}

/** An image of lines and texts that the styles of the page colour. */
async function imageOf(drawing) {
  const copy = drawing.cloneNode(true);
  const copies = copy.querySelectorAll("*");
  drawing.querySelectorAll("*").forEach((part, i) => {
    const style = getComputedStyle(part);
    for (const name of ["fill", "fill-opacity", "stroke", "stroke-width", "paint-order", "font"]) copies[i].style.setProperty(name, style.getPropertyValue(name));
  });
  const { width, height } = drawing.getBoundingClientRect();
  for (const [name, value] of Object.entries({ width, height, xmlns: "http://www.w3.org/2000/svg" })) copy.setAttribute(name, value);
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await image.decode();
  return image;
}

/** Draw a figure that is here already. */
export async function showFigure(element, figure) {
  element.figure = figure;
  element.look ??= {};
  element.closest(".analysis")?.classList.toggle("broad", isBroad(figure.layout));
  const { layout, hidden } = looked(figure.layout, element.look);
  const shown = fitted(withNote(layout, element.clientWidth));
  const data = figure.data.map((trace) => (trace.meta?.kind === "beyond" ? { ...trace, visible: !hidden } : trace));
  await draw(element, data, shown);
  if (!element.querySelector(":scope > .problem")) showTools(element, figure);
}

async function draw(element, data, shown) {
  if (data[0]?.type === "parcoords") {
    drawParallel(element, data[0], shown);
    return;
  }
  const [marks, room] = [coloured(data), () => giveRoom(element, shown)];
  if (OWN.has(element.dataset.figure) && canDraw(data)) {
    drawChart(element, marks, shown);
    return;
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
  if (layout.height) layout.height += TOOLS;
  element.style.height = layout.height ? `${layout.height + 2}px` : "";
  if (layout.meta?.least_width > element.clientWidth) layout.width = layout.meta.least_width;
}

function showProblem(element, sentence) {
  if (element.data) globalThis.Plotly.purge(element);
  element.replaceChildren(Object.assign(document.createElement("p"), { className: "problem", textContent: sentence }));
}

const PRINTED = 700; // pixels: a page of A4 within its margins

/**
 * Have figures printed as wide as paper, in the colours of paper. What is not drawn yet is drawn by Ctrl-P before the
 * browser prints, and soon after the visible figures for its menu, which cannot wait.
 */
export function whenPrinted(elements, drawRest) {
  const fit = (on) => {
    printing = on;
    document.documentElement.classList.toggle("printing", on);
    for (const element of elements.filter(({ figure }) => figure)) {
      if (element.data) globalThis.Plotly.relayout(element, { width: on ? Math.min(element.clientWidth, PRINTED) : undefined, autosize: !on });
      if (!element.data || DARK.matches) showFigure(element, element.figure);
    }
  };
  addEventListener("beforeprint", () => fit(true));
  addEventListener("afterprint", () => fit(false));
  addEventListener("keydown", async (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key !== "p") return;
    event.preventDefault();
    await drawRest();
    print();
  });
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

/** Show only the trials for whose row a function is true in full colour, in all figures; null: all. */
export function dimOthers(elements, passes) {
  for (const element of elements) {
    chartOf(element)?.select(passes);
    selectLines(element, passes);
  }
}

/** Have a trial that is pointed at, in a figure or a row of a table, stand out in all of them; a click opens it. */
export function pointing(elements, table, open) {
  const point = (trial, source) => {
    for (const element of elements) {
      if (element === source) continue;
      chartOf(element)?.highlight(trial);
      highlight(element, trial);
    }
    const rows = [...table.querySelectorAll("tbody tr[data-trial]")];
    const found = rows.some((row) => row.dataset.trial === trial);
    for (const row of rows) row.classList.toggle("pointed", found && row.dataset.trial === trial);
    table.classList.toggle("pointing", found && source !== "focus");
  };
  const rowOf = (event) => event.target.closest("tr[data-trial]")?.dataset.trial ?? null;
  table.addEventListener("mouseover", (event) => point(rowOf(event)));
  table.addEventListener("mouseleave", () => point(null));
  table.addEventListener("focusin", (event) => point(rowOf(event), "focus"));
  table.addEventListener("focusout", () => point(null));
  for (const element of elements) {
    element.addEventListener("point", ({ detail }) => point(detail.trial, element));
    element.addEventListener("pick", ({ detail }) => open?.(detail.trial));
  }
}
