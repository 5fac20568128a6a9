// A trial beside what is shown: its head, parameters, metrics and last lines, and the way to its own page.

import { fetchHtml, fetchJson, onKey, showTimes, tick } from "./core.js";
import { showFigure } from "./figures.js";
import { plainLine } from "./log.js";

const PARTS = ["head", "why", "parameters", "observed"];

let panel = null;
let shown = "";
let opener = null;

/** Show again what is shown, because it has changed. */
export async function refreshBeside(namespace) {
  if (panel?.open) await showBeside(namespace, shown, { again: true });
}

/** Show a trial beside the page; `name` again closes it. */
export async function showBeside(namespace, name, { again = false } = {}) {
  if (panel?.open && shown === name && !again) { panel.close(); return; }
  if (!panel?.open) opener = document.activeElement;
  shown = name;
  const address = `trials/${namespace}/${name}`;
  let html;
  try { html = await fetchHtml(`data/${address}/parts`); } catch { location.href = new URL(address, document.baseURI); return; }
  if (shown !== name) return; // another one was chosen meanwhile
  const found = new DOMParser().parseFromString(html, "text/html");
  const link = Object.assign(document.createElement("a"), { href: address, textContent: "Open its page", className: "button" });
  const close = Object.assign(document.createElement("button"), { type: "button", textContent: "Close" });
  close.addEventListener("click", () => panel.close());
  const foot = Object.assign(document.createElement("div"), { className: "beside-actions" });
  foot.append(link, close);
  const state = found.querySelector("[data-part=head] .state")?.dataset.state;
  const wanted = PARTS.filter((part) => part !== "why" || state !== "Succeeded"); // which needs no explanation
  const parts = wanted.flatMap((part) => [...(found.querySelector(`[data-part="${part}"]`)?.childNodes ?? [])]);
  dialog().replaceChildren(foot, ...parts);
  for (const action of panel.querySelectorAll(".headline .actions")) action.remove(); // they are of its own page
  for (const heading of panel.querySelectorAll("h1")) {
    const title = Object.assign(document.createElement("h2"), { id: "beside-title" });
    title.append(...heading.childNodes);
    heading.replaceWith(title);
  }
  tick(panel);
  showTimes(panel);
  showLastLines(namespace, name);
  if (!panel.open) panel.show();
  showCurve(address, parts.find((part) => part.matches?.(".scroll")));
  panel.scrollTop = 0;
  if (!again) link.focus({ preventScroll: true });
}

/** Show the curve of the objective above the parameters, if there is one. */
async function showCurve(address, before) {
  const named = shown;
  const { figures: [first] } = await fetchJson(`data/${address}/curves`).catch(() => ({ figures: [] }));
  const readings = first?.figure.data.find(({ meta }) => meta?.kind === "readings");
  if (named !== shown || !(readings?.y.length > 1)) return;
  const figure = Object.assign(document.createElement("div"), { className: "figure" });
  figure.dataset.figure = "curve";
  if (before) before.before(figure);
  else panel.append(figure);
  showFigure(figure, first.figure);
}

/** Show the end of a trial's output; nothing where there is none. */
async function showLastLines(namespace, name) {
  const text = await fetchHtml(`data/trials/${namespace}/${name}/tail`).catch(() => "");
  if (!text || shown !== name) return;
  const lines = text.replace(/\n$/, "").split("\n").map(plainLine).join("\n");
  panel.querySelector(".tail")?.remove(); // the same, of a trial that failed
  panel.append(
    Object.assign(document.createElement("h3"), { textContent: "The end of its output" }),
    Object.assign(document.createElement("pre"), { className: "text", tabIndex: 0, textContent: lines }),
  );
}

/** Have `j` and `k` show the next and the previous row of a table while the panel is open. */
export function stepBeside(namespace, table, otherwise) {
  for (const [key, tells, by] of [["j", "next row", 1], ["k", "previous row", -1]]) {
    onKey(key, tells, () => {
      const rows = [...(table?.querySelectorAll("tr[data-trial]") ?? [])];
      const at = rows.findIndex((row) => row.dataset.trial === shown);
      if (!panel?.open || !rows.length) { otherwise(by); return; }
      const row = rows[Math.min(rows.length - 1, Math.max(0, at + by))];
      row.scrollIntoView({ block: "nearest" });
      if (row.dataset.trial !== shown) showBeside(namespace, row.dataset.trial);
    });
  }
}

function dialog() {
  if (panel) return panel;
  panel = Object.assign(document.createElement("dialog"), { className: "beside-panel" });
  panel.setAttribute("aria-labelledby", "beside-title");
  panel.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    panel.close();
  });
  panel.addEventListener("close", () => { shown = ""; opener?.focus?.({ preventScroll: true }); });
  document.body.append(panel);
  return panel;
}
