// Parallel coordinates on a canvas: what Plotly's `parcoords` shows elsewhere. Plotly draws that trace with WebGL code
// that is compiled while it runs, which the page's policy forbids. `katib/figures/parallel.py` describes the JSON.
//
// The element gets two events:
//   "brush"  detail.conditions: [{ name, of, type, scale, ranges: [[low, high], ...] | choices: [...], absent }]
//            true values; `absent` says whether trials without the parameter are selected, too. Empty: no brush.
//   "pick"   detail.trial: name of the trial whose line was clicked.

const MARGIN = { top: 46, right: 104, bottom: 18 };
const LETTER = 6.6; // pixels of a letter, about
const LEAST_SPACE = 84; // between axes; a narrower figure scrolls sideways
const REACH = 12; // pixels beside an axis that belong to it
const NEAR = 7; // pixels from a line that belong to it
const GRIP = 5; // pixels from the end of a brush that hold it
const STEP = 0.02; // of an axis, for a key

const SVG = "http://www.w3.org/2000/svg";
const shown = new WeakMap();

/** Draw a figure into an element; brushes of the last drawing stay. */
export function drawParallel(element, trace, layout) {
  if (!shown.has(element)) shown.set(element, new Parallel(element));
  shown.get(element).take(trace, layout);
}

/** Have the line of a trial stand out, or none (null). Returns whether the trial is drawn. */
export function highlight(element, trial) {
  return shown.get(element)?.highlight(trial) ?? false;
}

/** Show brushes for conditions, which are as the event `brush` has them, and for no others. Sends no event. */
export function setBrushes(element, conditions) {
  shown.get(element)?.setBrushes(conditions);
}

/** The numbers of a column, which Plotly sends as a list or as bytes. */
export function numbersOf(column) {
  if (Array.isArray(column)) return Float64Array.from(column);
  const types = { i1: Int8Array, u1: Uint8Array, i2: Int16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };
  const bytes = Uint8Array.from(atob(column.bdata), (letter) => letter.charCodeAt(0));
  return Float64Array.from(new types[column.dtype](bytes.buffer));
}

function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function plain(html) {
  return new DOMParser().parseFromString(html, "text/html").documentElement.textContent;
}

function short(value) {
  return Number.isSafeInteger(value) ? `${value}` : `${Number(value.toPrecision(4))}`;
}

function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

/** A function from 0..1 to a colour between the stops of a scale. */
function colours(scale) {
  const stops = scale.map(([place, text]) => [place, [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16))]);
  return (share) => {
    const next = Math.max(1, stops.findIndex(([place]) => place >= share));
    const [[from, one], [to, other]] = [stops[next - 1], stops[next]];
    const part = to > from ? clamp((share - from) / (to - from), 0, 1) : 1;
    return `rgb(${one.map((value, i) => Math.round(value + part * (other[i] - value))).join(" ")})`;
  };
}

class Parallel {
  constructor(element) {
    this.element = element;
    this.brushes = new Map(); // name of the axis -> [[low, high], ...] in places
    this.pointed = null;
    this.highlighted = null;
    this.lines = Object.assign(document.createElement("canvas"), { className: "lines" });
    this.lines.setAttribute("role", "img");
    this.marked = Object.assign(document.createElement("canvas"), { className: "lines" });
    this.marked.setAttribute("aria-hidden", "true");
    this.axes = svg("svg", { class: "axes" });
    this.room = Object.assign(document.createElement("div"), { className: "room" });
    this.room.append(this.lines, this.marked, this.axes);
    this.scroller = Object.assign(document.createElement("div"), { className: "scroller" });
    this.scroller.append(this.room);
    this.tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
    this.note = Object.assign(document.createElement("p"), { className: "note" });
    const whole = Object.assign(document.createElement("div"), { className: "parallel" });
    whole.append(this.scroller, this.note, this.tip);
    element.replaceChildren(whole);
    this.axes.addEventListener("pointermove", (event) => this.point(event));
    this.axes.addEventListener("pointerleave", () => this.point(null));
    this.axes.addEventListener("click", () => this.pick());
    new ResizeObserver(() => this.dimensions && this.arrange()).observe(this.scroller);
  }

  take(trace, layout) {
    this.layout = layout;
    this.meta = layout.meta;
    this.dimensions = trace.dimensions.map((dimension, i) => ({
      ...this.meta.axes[i],
      range: dimension.range,
      places: numbersOf(dimension.values),
      ticks: [...numbersOf(dimension.tickvals)].map((place, j) => [place, dimension.ticktext[j]]).filter(([, text]) => text),
    }));
    const shades = numbersOf(trace.line.color);
    const scale = colours(layout.coloraxis.colorscale);
    this.colours = Array.from(shades, scale);
    const names = new Set(this.dimensions.map(({ name }) => name));
    for (const name of this.brushes.keys()) if (!names.has(name)) this.brushes.delete(name);
    this.note.textContent = (layout.annotations ?? []).map(({ text }) => plain(text.replaceAll("<br>", " "))).join(" ");
    this.lines.setAttribute("aria-label", `Parallel coordinates of ${this.meta.trials.length} trials`);
    this.arrange();
  }

  highlight(trial) {
    this.highlighted = trial;
    this.drawMarked();
    return this.meta?.trials.includes(trial) ?? false;
  }

  setBrushes(conditions) {
    this.brushes.clear();
    for (const dimension of this.dimensions) {
      const found = conditions.find(({ of, name }) => of === dimension.of && name === dimension.name);
      const ranges = found ? this.rangesOf(dimension, found) : [];
      if (ranges.length) this.brushes.set(dimension.name, ranges);
    }
    this.showBrushes();
    this.drawLines();
  }

  /** Where a condition lies on an axis. */
  rangesOf({ scale, range, choices, absent }, condition) {
    const near = (place) => [place - 0.4, place + 0.4];
    const places = (condition.choices ?? []).map((text) => (choices ?? []).indexOf(text)).filter((place) => place >= 0);
    const place = (value) => clamp(scale === "log" ? Math.log10(Math.max(value, 0)) : value, ...range);
    const below = (condition.ranges ?? []).map((ends) => ends.map(place));
    const least = scale === "categorical" ? near(absent) : [absent - (range[1] - range[0]) / 100, absent + (range[1] - range[0]) / 100];
    return [...places.map(near), ...below, ...(condition.absent && absent !== null ? [least] : [])];
  }

  /** Give everything its place; after new data and when the element changes its size. */
  arrange() {
    const { clientWidth, clientHeight } = this.scroller;
    if (!clientWidth || !clientHeight) return;
    const count = this.dimensions.length;
    const longest = Math.max(...this.dimensions[0].ticks.map(([, text]) => text.length), this.dimensions[0].name.length / 2);
    this.left = clamp(16 + LETTER * longest, 48, Math.max(64, clientWidth * 0.16));
    this.width = Math.max(clientWidth, this.left + MARGIN.right + LEAST_SPACE * (count - 1));
    this.height = clientHeight;
    this.bottom = this.height - MARGIN.bottom;
    const space = (this.width - this.left - MARGIN.right) / Math.max(count - 1, 1);
    this.dimensions.forEach((dimension, i) => {
      dimension.x = this.left + i * space;
      dimension.ys = dimension.places.map((place) => this.y(dimension, place));
    });
    const density = globalThis.devicePixelRatio || 1;
    for (const canvas of [this.lines, this.marked]) {
      [canvas.width, canvas.height] = [this.width * density, this.height * density];
      canvas.getContext("2d").setTransform(density, 0, 0, density, 0, 0);
    }
    for (const part of [this.room, this.lines, this.marked, this.axes]) {
      [part.style.width, part.style.height] = [`${this.width}px`, `${this.height}px`];
    }
    const focused = this.axes.querySelector(":focus")?.dataset.axis;
    this.axes.replaceChildren(this.bar(), ...this.dimensions.map((dimension) => this.axis(dimension, space)));
    if (focused) [...this.axes.querySelectorAll("[data-axis]")].find(({ dataset }) => dataset.axis === focused)?.focus();
    this.showBrushes();
    this.drawLines();
    this.drawMarked();
  }

  y({ range: [low, high] }, place) {
    return this.bottom - ((place - low) / (high - low)) * (this.bottom - MARGIN.top);
  }

  place({ range: [low, high] }, y) {
    return clamp(low + ((this.bottom - y) / (this.bottom - MARGIN.top)) * (high - low), low, high);
  }

  axis(dimension, space) {
    const { x, name } = dimension;
    const group = svg("g", { class: "axis", tabindex: "0", role: "slider", "aria-orientation": "vertical", "data-axis": name });
    const room = Math.max(4, Math.floor(space / 8.5));
    const title = svg("text", { class: "name", x, y: MARGIN.top - 22, "text-anchor": "middle" });
    title.append(name.length > room ? `${name.slice(0, room - 1)}…` : name, svg("title"));
    title.lastChild.textContent = name;
    group.append(title, svg("line", { x1: x, x2: x, y1: MARGIN.top, y2: this.bottom }));
    const letters = Math.max(4, Math.floor(((x === this.left ? this.left : space) - 12) / LETTER));
    for (const [place, text] of dimension.ticks) {
      const y = this.y(dimension, place);
      const label = svg("text", { x: x - 6, y, "text-anchor": "end", "dominant-baseline": "central" });
      label.append(text.length > letters ? `${text.slice(0, letters - 1)}…` : text);
      group.append(svg("line", { x1: x - 4, x2: x, y1: y, y2: y }), label);
    }
    group.append(svg("g", { class: "brushes" }));
    const handle = svg("rect", { class: "handle", x: x - REACH, y: MARGIN.top - 8, width: 2 * REACH, height: this.bottom - MARGIN.top + 16 });
    handle.addEventListener("pointerdown", (event) => this.brush(event, dimension, handle));
    handle.addEventListener("click", (event) => event.stopPropagation());
    group.append(handle);
    group.addEventListener("keydown", (event) => this.press(event, dimension));
    return group;
  }

  /** The colours with their values. */
  bar() {
    const { colorscale, colorbar } = this.layout.coloraxis;
    const [x, top, length] = [this.width - 76, MARGIN.top, this.bottom - MARGIN.top];
    const gradient = svg("linearGradient", { id: `shades-${this.element.dataset.figure ?? ""}`, x1: 0, x2: 0, y1: 1, y2: 0 });
    gradient.append(...colorscale.map(([offset, colour]) => svg("stop", { offset, "stop-color": colour })));
    const group = svg("g", { class: "bar", "aria-hidden": "true" }, gradient);
    group.append(svg("rect", { x, y: top, width: 9, height: length, fill: `url(#${gradient.id})` }));
    const places = numbersOf(colorbar.tickvals);
    colorbar.ticktext.forEach((text, i) => {
      const label = svg("text", { x: x + 13, y: top + (1 - places[i]) * length, "dominant-baseline": "central" });
      label.append(text);
      group.append(label);
    });
    return group;
  }

  /** Make, move or resize a brush with the pointer; with Shift beside those that are there. */
  brush(event, dimension, handle) {
    if (event.button !== 0) return;
    event.preventDefault();
    handle.closest("g.axis").focus({ preventScroll: true });
    const where = (moved) => this.place(dimension, moved.clientY - this.axes.getBoundingClientRect().top);
    const start = where(event);
    const before = this.brushes.get(dimension.name) ?? [];
    const slack = (GRIP * (dimension.range[1] - dimension.range[0])) / (this.bottom - MARGIN.top);
    const held = before.find(([low, high]) => start >= low - slack && start <= high + slack);
    const others = held ? before.filter((range) => range !== held) : event.shiftKey ? before : [];
    let moved = false;
    const drag = (now) => {
      const place = where(now);
      if (!moved && Math.abs(place - start) < slack / 2) return;
      moved = true;
      let range = [start, place];
      if (held) {
        const [low, high] = held;
        if (Math.abs(start - low) <= slack) range = [place, high];
        else if (Math.abs(start - high) <= slack) range = [low, place];
        else {
          const by = clamp(place - start, dimension.range[0] - low, dimension.range[1] - high);
          range = [low + by, high + by];
        }
      }
      this.set(dimension, [...others, range.sort((one, other) => one - other)]);
    };
    const end = () => {
      handle.removeEventListener("pointermove", drag);
      handle.removeEventListener("pointerup", end);
      handle.removeEventListener("pointercancel", end);
      if (!moved) this.click(dimension, start, before, held);
    };
    handle.setPointerCapture(event.pointerId);
    handle.addEventListener("pointermove", drag);
    handle.addEventListener("pointerup", end);
    handle.addEventListener("pointercancel", end);
  }

  /** A click on a choice takes it in or out; on a brush it removes that, elsewhere all of the axis. */
  click(dimension, place, before, held) {
    if (held) this.set(dimension, before.filter((range) => range !== held));
    else if (dimension.scale === "categorical") this.set(dimension, [...before, [Math.round(place) - 0.4, Math.round(place) + 0.4]]);
    else this.set(dimension, []);
  }

  /** Arrows move a brush, with Shift its upper end; Delete removes it. */
  press(event, dimension) {
    const [low, high] = dimension.range;
    const step = dimension.scale === "categorical" ? 1 : (high - low) * STEP;
    const by = { ArrowUp: step, ArrowDown: -step, PageUp: 5 * step, PageDown: -5 * step }[event.key];
    const [first] = this.brushes.get(dimension.name) ?? [];
    if (["Delete", "Backspace", "Escape"].includes(event.key) && first) this.set(dimension, []);
    else if (by !== undefined) {
      let range = first ?? (dimension.scale === "categorical" ? [-0.4, 0.4] : [low + (high - low) * 0.75, high]);
      if (first && event.shiftKey) range = [range[0], clamp(range[1] + by, range[0] + step / 2, high)];
      else if (first) {
        const shift = clamp(by, low - range[0], high - range[1]);
        range = [range[0] + shift, range[1] + shift];
      }
      this.set(dimension, [range]);
    } else return;
    event.preventDefault();
  }

  set(dimension, ranges) {
    if (ranges.length) this.brushes.set(dimension.name, ranges);
    else this.brushes.delete(dimension.name);
    this.changed();
  }

  changed() {
    this.showBrushes();
    if (!this.waiting) {
      this.waiting = requestAnimationFrame(() => {
        this.waiting = null;
        this.drawLines();
      });
    }
    this.element.dispatchEvent(new CustomEvent("brush", { detail: { conditions: this.conditions() } }));
  }

  conditions() {
    return this.dimensions.filter(({ name }) => this.brushes.has(name)).map((dimension) => {
      const { name, of, type, scale, choices, absent } = dimension;
      const ranges = this.brushes.get(name);
      const holds = (place) => ranges.some(([low, high]) => place >= low && place <= high);
      const condition = { name, of, type, scale, absent: absent !== null && holds(absent) };
      if (scale === "categorical") return { ...condition, choices: choices?.filter((_, place) => holds(place)) };
      const above = ranges.filter(([, high]) => absent === null || high >= absent + 1e-9);
      const lowest = absent === null ? -Infinity : this.lowest(dimension);
      const values = above.map((range) => range.map((place) => (scale === "log" ? 10 ** Math.max(place, lowest) : Math.max(place, lowest))));
      return { ...condition, ranges: values };
    });
  }

  lowest({ places, absent, range }) {
    const above = absent + (range[1] - range[0]) * 1e-6; // places come in single precision
    return places.reduce((least, place) => (place > above && place < least ? place : least), Infinity);
  }

  /** Which lines pass through all brushes. */
  selected() {
    const brushed = this.dimensions.filter(({ name }) => this.brushes.has(name)).map(({ name, places }) => [places, this.brushes.get(name)]);
    return this.meta.trials.map((_, i) => brushed.every(([places, ranges]) => ranges.some(([low, high]) => places[i] >= low && places[i] <= high)));
  }

  showBrushes() {
    for (const [i, group] of [...this.axes.querySelectorAll("g.axis")].entries()) {
      const dimension = this.dimensions[i];
      const ranges = this.brushes.get(dimension.name) ?? [];
      group.querySelector(".brushes").replaceChildren(...ranges.map(([low, high]) => {
        const [top, bottom] = [this.y(dimension, high), this.y(dimension, low)];
        return svg("rect", { x: dimension.x - 4, y: top, width: 8, height: Math.max(bottom - top, 2), rx: 2 });
      }));
      const [low, high] = ranges[0] ?? dimension.range;
      const text = ranges.length ? ranges.map((range) => this.words(dimension, range)).join(", ") : "all";
      const values = { "aria-label": dimension.name, "aria-valuemin": dimension.range[0], "aria-valuemax": dimension.range[1], "aria-valuenow": (low + high) / 2, "aria-valuetext": text };
      for (const [key, value] of Object.entries(values)) group.setAttribute(key, value);
    }
  }

  words(dimension, [low, high]) {
    if (dimension.scale === "categorical") {
      const within = dimension.ticks.filter(([place]) => place >= low && place <= high).map(([, text]) => text);
      return within.join(", ") || "none";
    }
    return [low, high].map((place) => short(dimension.scale === "log" ? 10 ** place : place)).join(" to ");
  }

  path(pen, i) {
    pen.beginPath();
    for (const { x, ys } of this.dimensions) pen.lineTo(x, ys[i]);
    pen.stroke();
  }

  drawLines() {
    const pen = this.lines.getContext("2d");
    pen.clearRect(0, 0, this.width, this.height);
    const selected = this.selected();
    const count = selected.filter(Boolean).length;
    pen.lineWidth = 1;
    if (count < selected.length) {
      pen.strokeStyle = getComputedStyle(this.element).borderTopColor; // as faint as a frame, however many there are
      pen.globalAlpha = 0.5;
      selected.forEach((is, i) => is || this.path(pen, i));
    }
    pen.lineWidth = count > 200 ? 1 : 1.5;
    pen.globalAlpha = count > 600 ? 0.5 : 0.75;
    selected.forEach((is, i) => {
      if (!is) return;
      pen.strokeStyle = this.colours[i];
      this.path(pen, i);
    });
    pen.globalAlpha = 1;
    this.lines.dataset.selected = count;
  }

  drawMarked() {
    const pen = this.marked.getContext("2d");
    pen.clearRect(0, 0, this.width, this.height);
    const style = getComputedStyle(this.element);
    for (const trial of new Set([this.highlighted, this.pointed])) {
      const i = this.meta?.trials.indexOf(trial) ?? -1;
      if (i < 0) continue;
      [pen.strokeStyle, pen.lineWidth] = [style.backgroundColor, 7];
      this.path(pen, i);
      [pen.strokeStyle, pen.lineWidth] = [style.color, 3];
      this.path(pen, i);
    }
  }

  /** Show which line is under the pointer. */
  point(event) {
    const found = event && !event.buttons && event.target === this.axes ? this.nearest(event) : null;
    const trial = found === null ? null : this.meta.trials[found];
    this.tip.hidden = trial === null;
    if (trial !== null) {
      const goal = this.dimensions.at(-1);
      this.tip.textContent = `${trial}: ${goal.name} ${short(goal.scale === "log" ? 10 ** goal.places[found] : goal.places[found])}`;
      const box = this.element.getBoundingClientRect();
      const left = clamp(event.clientX - box.left + 12, 0, Math.max(0, box.width - this.tip.offsetWidth - 8));
      [this.tip.style.left, this.tip.style.top] = [`${left}px`, `${event.clientY - box.top + 14}px`];
    }
    if (trial === this.pointed) return;
    this.pointed = trial;
    this.axes.style.cursor = trial === null ? "" : "pointer";
    this.drawMarked();
  }

  nearest(event) {
    const box = this.axes.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const right = this.dimensions.findIndex((dimension) => dimension.x >= x);
    if (right < 1) return null;
    const [one, other] = [this.dimensions[right - 1], this.dimensions[right]];
    const share = (x - one.x) / (other.x - one.x);
    let [best, least] = [null, NEAR];
    const selected = this.selected();
    for (let i = selected.length - 1; i >= 0; i--) {
      const distance = Math.abs(one.ys[i] + share * (other.ys[i] - one.ys[i]) - y);
      if (selected[i] && distance < least) [best, least] = [i, distance];
    }
    return best;
  }

  pick() {
    if (this.pointed !== null) this.element.dispatchEvent(new CustomEvent("pick", { detail: { trial: this.pointed } }));
  }
}
