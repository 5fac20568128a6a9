// The table of trials linked with the figures: brushes filter it, its filters dim the other trials in the figures, and a
// trial that is pointed at stands out in all of them.

import { dimOthers, pointing } from "./figures.js";
import { setBrushes } from "./parallel.js";

const escaped = (value) => value.replaceAll("\\", "\\\\").replaceAll("|", "\\|");
const rounded = (value) => (Number.isFinite(value) ? String(Number.isSafeInteger(value) ? value : Number(value.toPrecision(6))) : ""); // an open end

const ABSENT = { range: "none", value: "\\-" }; // how a filter writes that a trial does not have the column

export class Linked {
  #said = null; // the filters that the brushes show

  /** `part` is the table, `root` the page, `figures` the elements of figures. */
  constructor({ part, root, figures, open }) {
    this.part = part;
    this.figures = figures;
    const parallel = this.parallel = figures.find((element) => element.dataset.figure === "parallel");
    this.columns = [...root.querySelectorAll("[data-filter-column] option")].map((option) => ({
      key: option.value, ...option.dataset, choices: JSON.parse(option.dataset.choices),
    }));
    this.#buildFilters(root.querySelector("#add-filter"));
    if (!parallel) return;
    parallel.addEventListener("brush", ({ detail }) => this.#askBrushes(detail.conditions));
    part.element.addEventListener("shown", () => { this.#followFilters(); this.#dim(); });
    pointing(figures, part.element, open);
  }

  /** Show the trials that the table is not filtered to in faint colour. */
  #dim() {
    const text = this.part.element.querySelector("[data-selected]")?.dataset.selected;
    const bits = text && Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    dimOthers(this.figures, bits ? (row) => Boolean((bits[row >> 3] >> (row & 7)) & 1) : null);
  }

  #keyOf({ of, name }) {
    const group = of === "parameter" || of === "metric" ? of : "trial";
    return this.columns.find((column) => column.group === group && column.name === name)?.key;
  }

  /** The filters that are asked but for those of some columns. */
  #others(keys) {
    const isOf = (text, key) => text.startsWith(`${key}:`) || text.startsWith(`${key}=`);
    return this.part.query.getAll("where").filter((text) => !keys.some((key) => isOf(text, key)));
  }

  #askBrushes(conditions) {
    const filters = conditions.flatMap((condition) => {
      const key = this.#keyOf(condition);
      const filter = key ? filterOf(key, condition) : "";
      return filter ? [filter] : [];
    });
    const axes = this.axes.map((axis) => this.#keyOf(axis)).filter(Boolean);
    const where = [...this.#others(axes), ...filters];
    this.#said = where.join("\n");
    this.#ask(where);
  }

  #ask(where) {
    const query = new URLSearchParams(this.part.query);
    query.delete("where");
    for (const text of where) query.append("where", text);
    this.part.ask(query, { page: null });
  }

  /** A figure was drawn. */
  drawn(element, figure) {
    if (element === this.parallel) {
      this.axes = figure.layout.meta.axes;
      this.#followFilters();
    }
    this.#dim();
  }

  /** Show as brushes what the table is filtered by, where that did not come from them. */
  #followFilters() {
    const where = this.part.query.getAll("where");
    if (!this.axes || where.join("\n") === this.#said) return;
    this.#said = where.join("\n");
    setBrushes(this.parallel, where.flatMap((text) => {
      const column = this.columns.find(({ key }) => text.startsWith(`${key}:`) || text.startsWith(`${key}=`));
      return column ? [{ of: column.group === "trial" ? column.name : column.group, name: column.name, ...conditionOf(column.key, text) }] : [];
    }));
  }

  // --- the form that adds a filter

  #buildFilters(menu) {
    const select = menu.querySelector("[data-filter-column]");
    const [range, choices] = [menu.querySelector("[data-filter-range]"), menu.querySelector("[data-filter-choices]")];
    const [low, high] = [menu.querySelector("[data-filter-low]"), menu.querySelector("[data-filter-high]")];
    const show = () => {
      const column = this.columns[select.selectedIndex];
      range.hidden = column.kind === "choice";
      choices.hidden = !range.hidden;
      low.type = high.type = column.kind === "time" ? "datetime-local" : "text";
      low.inputMode = high.inputMode = "decimal";
      choices.replaceChildren(choices.firstElementChild, ...column.choices.map((choice) => {
        const label = document.createElement("label");
        label.append(Object.assign(document.createElement("input"), { type: "checkbox", value: choice }), ` ${choice}`);
        return label;
      }));
    };
    const add = () => {
      const column = this.columns[select.selectedIndex];
      const value = (field) => (field.value && column.kind === "time" ? new Date(field.value).toISOString() : field.value.trim());
      const checked = [...choices.querySelectorAll(":checked")].map((box) => escaped(box.value));
      const where = column.kind === "choice" ? checked.length && `${column.key}=${checked.join("|")}`
        : (low.value || high.value) && `${column.key}:${value(low)}..${value(high)}`;
      if (!where) return;
      menu.open = false;
      [low.value, high.value] = ["", ""];
      this.#ask([...this.#others([column.key]), where]);
    };
    select.addEventListener("change", (event) => { event.stopPropagation(); show(); });
    for (const element of [range, choices]) element.addEventListener("change", (event) => event.stopPropagation());
    menu.querySelector("[data-filter-add]").addEventListener("click", add);
    menu.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target.matches("input")) { event.preventDefault(); add(); }
    });
    show();
  }
}

/** The filter that a brush means; empty where it selects nothing that has a value. */
function filterOf(key, { ranges, choices, absent }) {
  if (choices) {
    const values = [...choices.map(escaped), ...(absent ? [ABSENT.value] : [])];
    return values.length ? `${key}=${values.join("|")}` : "";
  }
  const parts = [...(ranges ?? []).map(([low, high]) => `${rounded(low)}..${rounded(high)}`), ...(absent ? [ABSENT.range] : [])];
  return parts.length ? `${key}:${parts.join(",")}` : "";
}

/** What a filter means, as a brush says it. */
function conditionOf(key, filter) {
  const text = filter.slice(key.length + 1);
  if (filter[key.length] === "=") {
    const parts = text.match(/(\\.|[^|\\])*/g).filter((part, i, all) => part || !all[i - 1]);
    const choices = parts.filter((part) => part !== ABSENT.value).map((part) => part.replaceAll(/\\(.)/g, "$1"));
    return { choices, absent: parts.includes(ABSENT.value) };
  }
  const parts = text.split(",");
  const ends = parts.filter((part) => part !== ABSENT.range).map((part) => part.split(".."));
  return { ranges: ends.map(([low, high]) => [low ? Number(low) : -Infinity, high ? Number(high) : Infinity]), absent: parts.includes(ABSENT.range) };
}
