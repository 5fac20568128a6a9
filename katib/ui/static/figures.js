// Figures of the server, drawn by Plotly in the colours of the page.

let loading = null;

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

/** Call Plotly's function of a name, once it is there. */
export async function withPlotly(name, ...given) {
  return (await plotly())[name](...given);
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

/** A layout with some changes, as deep as they go. */
function merged(layout, changes) {
  const result = { ...layout };
  for (const [key, value] of Object.entries(changes)) {
    const inner = value !== null && typeof value === "object" && !Array.isArray(value);
    result[key] = inner ? merged(result[key] ?? {}, value) : value;
  }
  return result;
}

/** The layout of the server with the page's colours and without the title, which the page shows itself. */
function fitted(given) {
  const layout = DARK.matches && given.meta?.dark ? merged(given, given.meta.dark) : given;
  const [text, line] = [colour("--text"), colour("--line")];
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line };
  const result = {
    ...layout,
    title: undefined,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { ...layout.font, color: text, family: "system-ui, sans-serif" },
    margin: { ...layout.margin, t: Math.max(40, (layout.margin?.t ?? 70) - 30) },
    uirevision: "kept", // zoom and hidden traces survive an update
  };
  for (const key of Object.keys(layout)) {
    if (/^[xy]axis\d*$/.test(key)) result[key] = { ...layout[key], ...axis };
  }
  return result;
}

const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };

function tell(element, className, text) {
  const paragraph = Object.assign(document.createElement("p"), { className, textContent: text });
  if (globalThis.Plotly && element.data) globalThis.Plotly.purge(element);
  element.replaceChildren(paragraph);
}

/**
 * Draw a figure of the server into an element, or say why there is none. Returns the answer, null when there is none.
 * `prepare` may change the answer before it is drawn. The element's `version` says of what state of the trials it is.
 */
export async function drawFigure(element, address, prepare = () => {}) {
  let figure;
  try {
    const response = await fetch(address, { headers: { accept: "application/json" } });
    figure = await response.json();
    if (!response.ok) throw new Error(figure.detail ?? `the server answered ${response.status}`);
    element.version = Number(response.headers.get("x-katib-version") ?? 0);
    if (figure.obstacle) {
      tell(element, "problem", figure.obstacle);
      return null;
    }
    prepare(figure);
    const Plotly = await plotly();
    if (!element.data) element.replaceChildren();
    await Plotly.react(element, figure.data, fitted(figure.layout), CONFIG);
  } catch (error) {
    if (!element.data) tell(element, "problem", error.message); // else the last one stays
    return null;
  }
  return figure;
}

/** Run a function when the system turns light or dark. */
export function whenColoursChange(run) {
  DARK.addEventListener("change", run);
}
