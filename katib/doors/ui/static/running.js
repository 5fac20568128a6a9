// The running trials of an experiment: in the rows of its table, in a strip above, and as hollow marks of its history.

import { chartOf } from "./chart.js";
import { tick } from "./core.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [60, 18];
const MOST_IN_STRIP = 6;

/** A curve as a small line; nothing of a single reading. */
function lineOf(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const down = (value) => 1 + (HEIGHT - 2) * (high > low ? (high - value) / (high - low) : 0.5);
  const points = values.map((value, i) => `${((WIDTH * i) / (values.length - 1)).toFixed(1)},${down(value).toFixed(1)}`);
  const line = document.createElementNS(SVG, "svg");
  line.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  line.setAttribute("aria-hidden", "true");
  line.append(document.createElementNS(SVG, "polyline"));
  line.firstChild.setAttribute("points", values.length > 1 ? points.join(" ") : "");
  return line;
}

function valueOf({ text, exact, curve }) {
  const value = Object.assign(document.createElement("span"), { className: "so-far", textContent: text, title: `${exact}, so far` });
  return text ? [lineOf(curve), " ", value] : [Object.assign(document.createElement("span"), { className: "quiet", textContent: "no reading yet" })];
}

export class RunningNow {
  #trials = {};
  #history = null;

  constructor({ namespace, table, strip }) {
    Object.assign(this, { namespace, table, strip });
    table?.addEventListener("shown", () => this.#fillTable());
  }

  /** Show the trials that run now, by name. */
  show(trials) {
    this.#trials = trials;
    this.#fillTable();
    this.#fillStrip();
    this.#mark();
  }

  /** Note that the history is drawn anew. */
  drawn(element) {
    this.#history = element;
    this.#mark();
  }

  #fillTable() {
    for (const row of this.table?.querySelectorAll("tr[data-trial]") ?? []) {
      const trial = this.#trials[row.dataset.trial];
      if (trial) row.querySelector("[data-so-far]")?.replaceChildren(...valueOf(trial));
    }
  }

  #fillStrip() {
    const found = Object.entries(this.#trials);
    if (!this.strip) return;
    this.strip.hidden = !found.length;
    const list = this.strip.querySelector("ul");
    const focused = list.contains(document.activeElement) ? document.activeElement.textContent : "";
    list.replaceChildren(...found.slice(-MOST_IN_STRIP).reverse().map(([name, trial]) => {
      const item = document.createElement("li");
      const link = Object.assign(document.createElement("a"), { href: `trials/${this.namespace}/${name}`, textContent: name });
      const time = Object.assign(document.createElement("span"), { className: "quiet" });
      if (trial.since) time.dataset.since = trial.since;
      item.append(link, ...valueOf(trial), time);
      return item;
    }));
    const more = found.length - MOST_IN_STRIP;
    if (more > 0) list.append(Object.assign(document.createElement("li"), { className: "quiet", textContent: `and ${more} more` }));
    tick(list);
    [...list.querySelectorAll("a")].find(({ textContent }) => textContent === focused)?.focus({ preventScroll: true });
  }

  /** Put a hollow mark at the newest value of each, in place of its mark among those without a value. */
  #mark() {
    const chart = this.#history && chartOf(this.#history);
    if (!chart) return;
    const found = Object.entries(this.#trials).filter(([, { value }]) => value !== null);
    const color = chart.given?.find(({ name }) => name === "Running")?.marker.color;
    chart.add(!found.length ? [] : [{
      type: "scatter", mode: "markers", name: "running, so far", x: found.map(([, { number }]) => number), y: found.map(([, { value }]) => value),
      customdata: found.map(([name]) => name), marker: { color, symbol: "circle-open", size: 9 },
      hovertemplate: "%{customdata}<br>trial %{x}: %{y} so far",
    }]);
  }
}
