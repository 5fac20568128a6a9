// The table of trials linked with the figures beside it: brushes filter it, and a row shows its line.

import { withPlotly } from "./figures.js";

const escaped = (value) => value.replaceAll("\\", "\\\\").replaceAll("|", "\\|");
const rounded = (value) => String(Number(value.toPrecision(6)));

/** The parts of a text between separators that no backslash stands before. */
function split(text, separator) {
  const parts = [""];
  for (let i = 0; i < text.length; i++) {
    if (text[i] === "\\" && i + 1 < text.length) parts[parts.length - 1] += text[++i];
    else if (text[i] === separator) parts.push("");
    else parts[parts.length - 1] += text[i];
  }
  return parts;
}

export class Linked {
  #axes = []; // of the parallel coordinates, as `layout.meta` describes them
  #parallel = null;
  #trials = new Map(); // name of a drawn trial to its place
  #said = ""; // what was last asked by brushes

  constructor({ part, root, figures }) {
    this.part = part;
    this.columns = [...root.querySelectorAll("[data-filter-column] option")].map((option) => ({
      key: option.value, ...option.dataset, choices: JSON.parse(option.dataset.choices),
    }));
    this.element = figures.find((element) => element.dataset.figure === "parallel");
    part.element.addEventListener("shown", () => this.#followFilters());
    for (const name of ["mouseover", "focusin"]) {
      part.element.addEventListener(name, (event) => this.#highlight(event.target.closest("tr[data-trial]")?.dataset.trial));
    }
    for (const name of ["mouseleave", "focusout"]) part.element.addEventListener(name, () => this.#highlight(null));
    this.#buildFilters(root.querySelector("#add-filter"));
  }

  // --- brushes and filters

  #keyOf(axis) {
    const group = axis.of === "parameter" || axis.of === "metric" ? axis.of : "trial";
    return this.columns.find((column) => column.group === group && column.name === axis.name)?.key;
  }

  #whereOf(key) {
    return this.part.query.getAll("where").find((text) => text.startsWith(`${key}:`) || text.startsWith(`${key}=`));
  }

  /** The filter that a brush means; empty when it means none. */
  #filterOf(axis, dimension) {
    const given = dimension.constraintrange;
    if (!given?.length) return "";
    const ranges = Array.isArray(given[0]) ? given : [given];
    if (axis.scale === "categorical") {
      const chosen = (axis.choices ?? []).filter((_, place) => ranges.some(([low, high]) => low <= place && place <= high));
      return chosen.length ? `${axis.key}=${chosen.map(escaped).join("|")}` : "";
    }
    const value = (place) => rounded(axis.scale === "log" ? 10 ** place : place);
    return `${axis.key}:${ranges.map(([low, high]) => `${value(low)}..${value(high)}`).join(",")}`;
  }

  /** The brush that a filter means; undefined when there is none. */
  #brushOf(axis, dimension) {
    const where = axis.key && this.#whereOf(axis.key);
    if (!where) return undefined;
    const text = where.slice(axis.key.length + 1);
    if (where[axis.key.length] === "=") {
      const places = split(text, "|").map((value) => (axis.choices ?? []).indexOf(value)).filter((place) => place >= 0);
      return places.map((place) => [place - 0.4, place + 0.4]);
    }
    const place = (value) => (axis.scale === "log" ? Math.log10(Number(value)) : Number(value));
    return text.split(",").map((range) => {
      const [low, high] = range.split("..");
      return [low ? place(low) : dimension.range[0], high ? place(high) : dimension.range[1]];
    });
  }

  /** Before a figure is drawn: note what its axes mean, and keep the brushes. */
  prepare(element, figure) {
    if (element !== this.element || !figure.layout.meta?.axes) return;
    this.#axes = figure.layout.meta.axes.map((axis) => ({ ...axis, key: this.#keyOf(axis) }));
    this.#trials = new Map(figure.layout.meta.trials.map((name, place) => [name, place]));
    figure.data[0].dimensions.forEach((dimension, i) => {
      dimension.name = String(i); // an axis can be moved
      dimension.constraintrange = this.#brushOf(this.#axes[i], dimension);
    });
  }

  drawn(element) {
    if (element !== this.element || this.#parallel) return;
    this.#parallel = element;
    element.on("plotly_restyle", () => this.#askBrushes());
  }

  #askBrushes() {
    const dimensions = this.#parallel.data[0].dimensions;
    const where = this.part.query.getAll("where")
      .filter((text) => !this.#axes.some((axis) => axis.key && this.#whereOf(axis.key) === text));
    for (const dimension of dimensions) {
      const axis = this.#axes[Number(dimension.name)];
      const filter = axis?.key ? this.#filterOf(axis, dimension) : "";
      if (filter) where.push(filter);
    }
    this.#ask(where);
  }

  #ask(where) {
    const query = new URLSearchParams(this.part.query);
    query.delete("where");
    for (const text of where) query.append("where", text);
    this.#said = where.join("\n");
    this.part.ask(query, { page: null });
  }

  /** When a filter was taken away in the table, its brush goes, too. */
  #followFilters() {
    const where = this.part.query.getAll("where").join("\n");
    if (!this.#parallel || where === this.#said) return;
    this.#said = where;
    const update = {};
    this.#parallel.data[0].dimensions.forEach((dimension, i) => {
      const axis = this.#axes[Number(dimension.name)];
      update[`dimensions[${i}].constraintrange`] = [this.#brushOf(axis, dimension) ?? null];
    });
    withPlotly("restyle", this.#parallel, update, [0]);
  }

  // --- the line of a row

  #highlight(name) {
    this.#parallel?.querySelector(".highlight")?.remove();
    const place = name ? this.#trials.get(name) : undefined;
    if (place === undefined || !this.#parallel) return;
    const points = [];
    const frame = this.#parallel.getBoundingClientRect();
    const dimensions = this.#parallel._fullData[0].dimensions;
    for (const axis of this.#parallel.querySelectorAll(".parcoords .y-axis")) {
      const dimension = dimensions[axis.__data__?.index ?? -1];
      const box = axis.querySelector(".axis-brush .background")?.getBoundingClientRect();
      if (!dimension || !box) continue;
      const pad = PADDING * (box.height / (axis.__data__.model?.canvasHeight || box.height));
      const [low, high] = dimension.range;
      const share = (dimension.values[place] - low) / (high - low);
      points.push([box.left + box.width / 2 - frame.left, box.bottom - pad - share * (box.height - 2 * pad) - frame.top]);
    }
    points.sort((one, other) => one[0] - other[0]);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("class", "highlight");
    svg.setAttribute("aria-hidden", "true");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    line.setAttribute("points", points.map((point) => point.join(",")).join(" "));
    svg.append(line);
    this.#parallel.append(svg);
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
      const kept = this.part.query.getAll("where").filter((text) => text !== this.#whereOf(column.key));
      const query = new URLSearchParams(this.part.query);
      query.delete("where");
      for (const text of [...kept, where]) query.append("where", text);
      menu.open = false;
      [low.value, high.value] = ["", ""];
      this.part.ask(query, { page: null });
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

const PADDING = 0; // of the axes in the figure
