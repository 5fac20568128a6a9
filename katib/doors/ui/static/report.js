// A page in one file: figures and a table of trials from the data that it holds. It asks no machine for anything.
// `katib/doors/ui/report.py` puts it behind the modules that it imports from.

import { dimOthers, isBroad, pointing, showFigure, whenColoursChange, whenPrinted } from "./figures.js";
import { completing, testsOf } from "./search.js";

const ROWS = 200; // of the table that are shown at once
const ORDINARY = "Succeeded"; // the state that needs no mark

async function unpacked(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

/** A number with the digits that are compared at a glance. */
function inDigits(value) {
  return Number.isSafeInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
}

/** Seconds in at most two units. */
function inUnits(seconds) {
  if (seconds < 10) return `${Number(seconds.toFixed(1))}s`;
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  if (hours >= 24) return `${Math.floor(hours / 24)}d${hours % 24 ? `${hours % 24}h` : ""}`;
  if (hours) return `${hours}h${minutes ? `${minutes}m` : ""}`;
  return minutes ? `${minutes}m${rest ? `${rest}s` : ""}` : `${rest}s`;
}

const WORDS = {
  number: (value) => (typeof value === "number" ? inDigits(value) : value),
  duration: (value) => (typeof value === "number" ? inUnits(value) : value),
  time: (value) => new Date(value).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }),
};

function made(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

class Trials {
  #conditions = []; // of brushes
  #limit = ROWS;

  constructor({ columns, best, sort }) {
    Object.assign(this, { columns, best, sort });
    this.form = document.getElementById("filters");
    this.table = document.getElementById("table");
    this.tally = document.getElementById("tally");
    this.more = document.getElementById("more");
    this.count = columns[0].values.length;
    this.names = this.column("trial", "trial").values;
    this.states = this.column("trial", "state").values;
    this.feasible = this.column("trial", "feasible").values;
    for (const state of [...new Set(this.states)].sort()) this.form.elements.state.append(made("option", { textContent: state }));
    completing(this.form.elements.text, JSON.parse(this.form.elements.text.dataset.terms));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", () => this.#ask()); // not `change`: it comes between a press and its click
    this.more.addEventListener("click", () => { this.#limit += ROWS; this.show(); });
    this.table.addEventListener("click", (event) => this.#order(event.target.closest("button")?.dataset.key));
    this.show();
  }

  column(group, name) {
    return this.columns.find((one) => one.group === group && one.name === name);
  }

  /** Show only what brushes of the parallel coordinates select. */
  brush(conditions) {
    this.#conditions = conditions.flatMap((condition) => {
      const { of, name } = condition;
      const column = of === "parameter" || of === "metric" ? this.column(of, name) : this.column("trial", name);
      return column ? [{ ...condition, column }] : [];
    });
    this.#ask();
  }

  /** Link the table with figures: they dim what it is filtered by, and show what is pointed at. */
  link(elements) {
    this.figures = elements;
    pointing(elements, this.table);
  }

  showAll() {
    this.#limit = Infinity;
    this.show();
  }

  dim() {
    dimOthers(this.figures ?? [], this.found && ((row) => this.found.has(row)));
  }

  #ask() {
    this.#limit = ROWS;
    this.show();
  }

  #order(key) {
    if (!key) return;
    this.sort = { key, descending: this.sort.key === key && !this.sort.descending };
    this.show();
    this.table.querySelector(`button[data-key="${CSS.escape(key)}"]`)?.focus();
  }

  #passes(row) {
    return this.#conditions.every(({ column, ranges, choices, absent }) => {
      const value = column.values[row];
      if (value === null || value === "") return Boolean(absent);
      if (choices) return choices.map(String).includes(String(value));
      return (ranges ?? []).some(([low, high]) => value >= low && value <= high);
    });
  }

  /** The rows that pass, in order; those without a value of the column last in either order. */
  #rows() {
    const { text, state } = this.form.elements;
    const tests = testsOf(text.value, this.columns);
    const passes = (row) => (!state.value || this.states[row] === state.value) && this.#passes(row) && tests.every((test) => test(row));
    const found = [...Array(this.count).keys()].filter(passes);
    const column = this.columns.find(({ key }) => key === this.sort.key);
    const bad = column.group === "metric"; // what violates a constraint is not the best
    const rank = (row) => (column.values[row] === null || column.values[row] === "" ? 2 : Number(bad && this.feasible[row] === "no"));
    const turn = this.sort.descending ? -1 : 1;
    return found.sort((one, other) => {
      const ranks = rank(one) - rank(other);
      if (ranks) return ranks;
      const [a, b] = [column.values[one], column.values[other]];
      if (a === b) return one - other;
      return turn * (typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : 1);
    });
  }

  show() {
    const rows = this.#rows();
    this.found = rows.length < this.count ? new Set(rows) : null;
    this.dim();
    const columns = this.columns.filter(({ shown }) => shown || this.form.elements.all.checked);
    const heads = columns.map(({ key, title, kind }) => {
      const chosen = this.sort.key === key;
      const button = made("button", { type: "button", className: "plain", textContent: title });
      button.dataset.key = key;
      if (chosen) button.append(made("span", { ariaHidden: "true", textContent: this.sort.descending ? " ▼" : " ▲" }));
      const head = made("th", { scope: "col", className: ["number", "duration"].includes(kind) ? "number" : "" }, button);
      if (chosen) head.setAttribute("aria-sort", this.sort.descending ? "descending" : "ascending");
      return head;
    });
    const body = rows.slice(0, this.#limit).map((row) => this.#row(row, columns));
    this.table.replaceChildren(made("thead", {}, made("tr", {}, ...heads)), made("tbody", {}, ...body));
    const all = this.count.toLocaleString("en");
    this.tally.textContent = rows.length === this.count ? `${all} trial${this.count === 1 ? "" : "s"}` : `${rows.length.toLocaleString("en")} of ${all} trials`;
    this.more.hidden = rows.length <= this.#limit;
    document.getElementById("no-hit").hidden = rows.length > 0;
  }

  #row(row, columns) {
    const cells = columns.map((column) => this.#cell(column, row));
    const line = made("tr", { className: row === this.best ? "best" : "" }, ...cells);
    line.dataset.trial = this.names[row];
    return line;
  }

  #cell(column, row) {
    const value = column.values[row];
    if (column.group === "trial" && column.name === "trial") {
      const head = made("th", { scope: "row", textContent: value });
      if (row === this.best) head.append(" ", made("span", { className: "mark", title: "The best trial" }, "★", made("span", { className: "hidden", textContent: " best" })));
      if (this.feasible[row] === "no") head.append(" ", made("span", { className: "mark", title: "Does not satisfy the constraints" }, "⚠", made("span", { className: "hidden", textContent: " infeasible" })));
      return head;
    }
    const right = ["number", "duration"].includes(column.kind) ? "number" : "";
    if (value === null || value === "") return made("td", { className: right, textContent: "–" });
    if (column.group === "trial" && column.name === "state" && value !== ORDINARY) {
      const badge = made("span", { className: "state", textContent: value });
      badge.dataset.state = value;
      return made("td", {}, badge);
    }
    const words = WORDS[column.kind]?.(value) ?? value;
    const cell = made("td", { className: right, textContent: words });
    if (words !== String(value)) cell.title = column.kind === "duration" ? `${value} s` : value;
    return cell;
  }
}

/** Draw figures as they come into view, all of them for a printer, and again when the system turns light or dark. */
async function drawAll(figures, table) {
  if (Object.keys(figures).length) document.head.append(made("script", { textContent: await unpacked("plotly") }));
  const waiting = new Set(document.querySelectorAll("[data-figure]"));
  const drawn = new Set();
  const draw = async (element) => {
    waiting.delete(element);
    drawn.add(element);
    await showFigure(element, figures[element.dataset.figure]);
    table?.dim();
  };
  const seen = new IntersectionObserver((entries) => {
    for (const { target } of entries.filter(({ isIntersecting }) => isIntersecting)) {
      seen.unobserve(target);
      if (waiting.has(target)) draw(target);
    }
  }, { rootMargin: "400px" });
  for (const element of waiting) {
    const { layout } = figures[element.dataset.figure];
    element.closest(".analysis")?.classList.toggle("broad", isBroad(layout));
    seen.observe(element);
  }
  const drawRest = () => Promise.all([...waiting].map(draw));
  setTimeout(drawRest, 2000);
  whenPrinted([...document.querySelectorAll("[data-figure]")], drawRest);
  addEventListener("beforeprint", () => { drawRest(); table?.showAll(); });
  whenColoursChange(() => drawn.forEach(draw));
}

async function begin() {
  if (!globalThis.DecompressionStream) {
    document.getElementById("too-old").hidden = false;
    return;
  }
  for (const time of document.querySelectorAll("time")) {
    time.textContent = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  }
  const yaml = document.getElementById("yaml-text");
  document.getElementById("copy-yaml")?.addEventListener("click", async () => {
    getSelection().selectAllChildren(yaml);
    document.getElementById("copied").textContent = document.execCommand("copy") ? "Copied." : "The browser did not let the page copy.";
  });
  const { figures, trials } = JSON.parse(await unpacked("data"));
  const table = trials && new Trials(trials);
  if (table) {
    document.getElementById("figure-parallel")?.addEventListener("brush", ({ detail }) => table.brush(detail.conditions));
    table.link([...document.querySelectorAll("[data-figure]")]);
  }
  await drawAll(figures, table);
}

begin();
