// The table of trials linked with the parallel coordinates: brushes filter it, and a row shows its line.

import { clearBrushes, highlight } from "./parallel.js";

const escaped = (value) => value.replaceAll("\\", "\\\\").replaceAll("|", "\\|");
const rounded = (value) => String(Number(value.toPrecision(6)));

const ABSENT = { range: "none", value: "\\-" }; // how a filter writes that a trial does not have the column

export class Linked {
  #brushed = new Map(); // key of a column to the filter that its brush made

  /** `part` is the table, `root` the page, `parallel` the element of the figure, if there is one. */
  constructor({ part, root, parallel, open }) {
    this.part = part;
    this.parallel = parallel;
    this.columns = [...root.querySelectorAll("[data-filter-column] option")].map((option) => ({
      key: option.value, ...option.dataset, choices: JSON.parse(option.dataset.choices),
    }));
    this.#buildFilters(root.querySelector("#add-filter"));
    if (!parallel) return;
    parallel.addEventListener("brush", ({ detail }) => this.#askBrushes(detail.conditions));
    parallel.addEventListener("pick", ({ detail }) => open(detail.trial));
    part.element.addEventListener("shown", () => this.#followFilters());
    for (const name of ["mouseover", "focusin"]) {
      part.element.addEventListener(name, (event) => this.#highlight(event.target.closest("tr[data-trial]")));
    }
    for (const name of ["mouseleave", "focusout"]) part.element.addEventListener(name, () => this.#highlight(null));
  }

  #highlight(row) {
    if (this.parallel.querySelector(".parallel")) highlight(this.parallel, row?.dataset.trial ?? null);
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
    const before = [...this.#brushed.keys()];
    this.#brushed = new Map(conditions.flatMap((condition) => {
      const key = this.#keyOf(condition);
      const filter = key ? filterOf(key, condition) : "";
      return filter ? [[key, filter]] : [];
    }));
    const where = this.#others([...before, ...this.#brushed.keys()]);
    this.#ask([...where, ...this.#brushed.values()]);
  }

  #ask(where) {
    const query = new URLSearchParams(this.part.query);
    query.delete("where");
    for (const text of where) query.append("where", text);
    this.part.ask(query, { page: null });
  }

  /** When the filter of a brush was taken away in the table, the brushes go, too. */
  #followFilters() {
    const where = this.part.query.getAll("where");
    if ([...this.#brushed.values()].every((filter) => where.includes(filter))) return;
    const kept = where.filter((text) => ![...this.#brushed.values()].includes(text));
    this.#brushed.clear();
    clearBrushes(this.parallel); // which asks for what is left
    if (kept.length !== where.length) this.#ask(kept);
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
