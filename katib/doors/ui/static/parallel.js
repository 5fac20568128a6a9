// Parallel coordinates on a canvas: what Plotly's `parcoords` shows elsewhere. Plotly draws that trace with WebGL code
// that is compiled while it runs, which the page's policy forbids. `katib/figures/parallel.py` describes the JSON.
//
// The element gets two events:
//   "brush"  detail.conditions: [{ name, of, type, scale, ranges: [[low, high], ...] | choices: [...], absent }]
//            true values; `absent` says whether trials without the parameter are selected, too. Empty: no brush.
//   "pick"   detail.trial: name of the trial whose line was clicked.
//   "point"  detail.trial: name of the trial whose line is beneath the pointer, or null.

const MARGIN = { top: 46, bottom: 18 };
const BAR = 9; // width of the colours
const LEAST_SPACE = 56; // between axes; of a narrower figure the axes of parameters scroll sideways
const LONGEST_NAME = 40;
const SLANT = 25; // degrees of names that do not fit between two axes
const [SLANT_COS, SLANT_SIN] = [Math.cos, Math.sin].map((turn) => turn((SLANT * Math.PI) / 180));
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

/** Show only the lines of trials for whose row a function is true in full colour; null: all that brushes select. */
export function selectLines(element, passes) {
  shown.get(element)?.select(passes);
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

/** A text of HTML without marks. */
export function plain(html) {
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
    this.visible = []; // axes that are not scrolled away
    this.lines = Object.assign(document.createElement("canvas"), { className: "lines" });
    this.lines.setAttribute("role", "img");
    this.marked = Object.assign(document.createElement("canvas"), { className: "lines" });
    this.marked.setAttribute("aria-hidden", "true");
    this.axes = svg("svg", { class: "axes" });
    this.passes = null;
    this.pane = Object.assign(document.createElement("div"), { className: "pane" });
    this.pane.append(this.lines, this.marked, this.axes);
    this.room = Object.assign(document.createElement("div"), { className: "room" });
    this.room.append(this.pane);
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
    this.scroller.addEventListener("scroll", () => this.arrange());
    new ResizeObserver(() => this.dimensions && this.arrange()).observe(this.scroller);
  }

  take(trace, layout) {
    this.layout = layout;
    this.meta = layout.meta;
    const before = this.dimensions?.map(({ name }) => name) ?? [];
    this.dimensions = trace.dimensions.map((dimension, i) => {
      const [axis, places] = [this.meta.axes[i], numbersOf(dimension.values)];
      const range = (layout.look?.all && axis.ends) || dimension.range;
      let ticks = [...numbersOf(dimension.tickvals)].map((place, j) => [place, dimension.ticktext[j]]).filter(([, text]) => text);
      if (range !== dimension.range) {
        const ends = [Math.min(...places), Math.max(...places)];
        ticks = ends.map((place) => [place, short(axis.scale === "log" ? 10 ** place : place)]);
      }
      return { ...axis, range, values: places, places: places.map((place) => clamp(place, ...range)), ticks };
    });
    const goal = this.dimensions.pop();
    const rank = ({ name }) => (before.includes(name) ? before.indexOf(name) : Infinity); // axes stay where they were dragged
    this.dimensions.sort((one, other) => (rank(one) === rank(other) ? 0 : rank(one) - rank(other)));
    this.dimensions.push(goal);
    const shades = numbersOf(trace.line.color);
    const scale = colours(layout.coloraxis.colorscale);
    this.colours = Array.from(shades, scale);
    const names = new Set(this.dimensions.map(({ name }) => name));
    for (const name of this.brushes.keys()) if (!names.has(name)) this.brushes.delete(name);
    this.told = (layout.annotations ?? []).map(({ text }) => plain(text.replaceAll("<br>", " "))).join(" ");
    this.lines.setAttribute("aria-label", `Parallel coordinates of ${this.meta.trials.length} trials`);
    this.arrange();
  }

  highlight(trial) {
    this.highlighted = trial;
    this.drawMarked();
    return this.meta?.trials.includes(trial) ?? false;
  }

  select(passes) {
    this.passes = passes;
    if (this.meta) this.drawLines();
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

  /**
   * Give everything its place; after new data, when the element changes its size, and when it is scrolled. The axis of the
   * objective and the colours stand at the right, whatever is scrolled.
   */
  arrange() {
    const { clientWidth, clientHeight, scrollLeft } = this.scroller;
    if (!clientWidth || !clientHeight) return;
    const pen = this.lines.getContext("2d");
    const style = getComputedStyle(this.element);
    const wide = (text, weight = 400) => { pen.font = `${weight} 12px ${style.fontFamily}`; return pen.measureText(text).width; };
    const widest = (texts) => Math.max(0, ...texts.map((text) => wide(text)));
    const goal = this.dimensions.at(-1);
    const parameters = this.dimensions.slice(0, -1);
    for (const dimension of this.dimensions) {
      const { name } = dimension;
      dimension.title = name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME / 2)}…${name.slice(-LONGEST_NAME / 2)}` : name;
      dimension.long = wide(dimension.title, 600);
      dimension.room = widest(dimension.ticks.map(([, text]) => text)) + 18;
    }
    [this.width, this.height, this.bottom] = [clientWidth, clientHeight, clientHeight - MARGIN.bottom];
    const best = this.meta.trials.indexOf(this.meta.best);
    this.star = best < 0 ? null : { line: best, text: short(goal.scale === "log" ? 10 ** goal.values[best] : goal.values[best]) };
    this.barAt = 24 + (this.star ? wide(this.star.text, 600) : 0);
    let right = this.barAt + BAR + 12 + widest(this.layout.coloraxis.colorbar.ticktext);
    const left = this.dimensions[0].room + 6;
    const gaps = this.dimensions.slice(1).map(({ room }) => Math.max(room, LEAST_SPACE));
    const least = gaps.reduce((sum, gap) => sum + gap, 0);
    const spread = () => {
      const room = clientWidth - left - right;
      const even = room / Math.max(gaps.length, 1);
      return even >= Math.max(...gaps, 0) ? gaps.map(() => even) : gaps.map((gap) => gap + Math.max(room - least, 0) / gaps.length);
    };
    let spaces = spread();
    this.slanted = this.dimensions.some(({ long }, i) => long > Math.min(spaces[i] ?? 2 * right, spaces[i - 1] ?? 2 * left) - 10);
    this.top = this.slanted ? 34 + SLANT_SIN * Math.max(...this.dimensions.map(({ long }) => long)) : MARGIN.top;
    if (this.slanted) {
      right = Math.max(right, SLANT_COS * goal.long + 12);
      spaces = spread();
    }
    this.room.style.width = `${Math.max(clientWidth, left + right + least)}px`;
    goal.x = clientWidth - right;
    let x = left - scrollLeft;
    parameters.forEach((dimension, i) => {
      dimension.x = x;
      x += spaces[i];
    });
    this.visible = [...parameters.filter((dimension) => dimension.x >= dimension.room - 4 && dimension.x < goal.x - goal.room / 2), goal];
    for (const dimension of this.dimensions) dimension.ys = dimension.places.map((place) => this.y(dimension, place));
    const density = globalThis.devicePixelRatio || 1;
    for (const canvas of [this.lines, this.marked]) {
      [canvas.width, canvas.height] = [this.width * density, this.height * density];
      canvas.getContext("2d").setTransform(density, 0, 0, density, 0, 0);
    }
    for (const part of [this.pane, this.lines, this.marked, this.axes]) {
      [part.style.width, part.style.height] = [`${this.width}px`, `${this.height}px`];
    }
    const focused = this.axes.querySelector(":focus")?.dataset.axis;
    const away = this.dimensions.length - this.visible.length;
    this.note.textContent = [this.told, away && `${away} more ${away > 1 ? "axes" : "axis"}: scroll sideways.`].filter(Boolean).join(". ");
    this.axes.replaceChildren(this.bar(), ...this.visible.map((dimension) => this.axis(dimension)));
    if (focused) [...this.axes.querySelectorAll("[data-axis]")].find(({ dataset }) => dataset.axis === focused)?.focus();
    this.showBrushes();
    this.drawLines();
    this.drawMarked();
  }

  y({ range: [low, high] }, place) {
    return this.bottom - ((place - low) / (high - low)) * (this.bottom - this.top);
  }

  place({ range: [low, high] }, y) {
    return clamp(low + ((this.bottom - y) / (this.bottom - this.top)) * (high - low), low, high);
  }

  axis(dimension) {
    const { x, name } = dimension;
    const group = svg("g", { class: "axis", tabindex: "0", role: "slider", "aria-orientation": "vertical", "data-axis": name });
    const at = [x, this.top - 18];
    const turned = this.slanted ? { "text-anchor": "start", transform: `rotate(-${SLANT} ${at.join(" ")})` } : { "text-anchor": "middle" };
    const title = svg("text", { class: "name", x: at[0], y: at[1], ...turned }, dimension.title, svg("title"));
    title.lastChild.textContent = dimension === this.dimensions.at(-1) ? name : `${name}: drag sideways to move its axis`;
    title.addEventListener("pointerdown", (event) => this.carry(event, dimension));
    group.append(title, svg("line", { x1: x, x2: x, y1: this.top, y2: this.bottom }));
    for (const [place, text] of dimension.ticks) {
      const y = this.y(dimension, place);
      group.append(
        svg("line", { x1: x - 4, x2: x, y1: y, y2: y }),
        svg("text", { x: x - 7, y, "text-anchor": "end", "dominant-baseline": "central" }, text),
      );
    }
    group.append(svg("g", { class: "brushes" }));
    const handle = svg("rect", { class: "handle", x: x - REACH, y: this.top - 8, width: 2 * REACH, height: this.bottom - this.top + 16 });
    handle.addEventListener("pointerdown", (event) => this.brush(event, dimension, handle));
    handle.addEventListener("click", (event) => event.stopPropagation());
    group.append(handle);
    group.addEventListener("keydown", (event) => this.press(event, dimension));
    return group;
  }

  /** Move an axis among those of the other parameters. */
  carry(event, dimension) {
    if (event.button !== 0 || dimension === this.dimensions.at(-1)) return;
    event.preventDefault();
    const drag = ({ clientX }) => {
      const x = clientX - this.axes.getBoundingClientRect().left;
      const others = this.dimensions.slice(0, -1).filter((other) => other !== dimension);
      this.move(dimension, others.filter((other) => other.x + (other.x < dimension.x ? 0.5 : -0.5) * LEAST_SPACE < x).length);
    };
    const end = () => { removeEventListener("pointermove", drag); removeEventListener("pointerup", end); };
    addEventListener("pointermove", drag);
    addEventListener("pointerup", end);
  }

  move(dimension, to) {
    if (this.dimensions.indexOf(dimension) === to || to < 0 || to > this.dimensions.length - 2) return;
    this.dimensions.splice(this.dimensions.indexOf(dimension), 1);
    this.dimensions.splice(to, 0, dimension);
    this.arrange();
  }

  /** The colours with their values. */
  bar() {
    const { colorscale, colorbar } = this.layout.coloraxis;
    const [x, top, length] = [this.dimensions.at(-1).x + this.barAt, this.top, this.bottom - this.top];
    const gradient = svg("linearGradient", { id: `shades-${this.element.dataset.figure ?? ""}`, x1: 0, x2: 0, y1: 1, y2: 0 });
    gradient.append(...colorscale.map(([offset, colour]) => svg("stop", { offset, "stop-color": colour })));
    const group = svg("g", { class: "bar", "aria-hidden": "true" }, gradient);
    group.append(svg("rect", { x, y: top, width: BAR, height: length, fill: `url(#${gradient.id})` }));
    const places = numbersOf(colorbar.tickvals);
    colorbar.ticktext.forEach((text, i) => {
      const label = svg("text", { x: x + BAR + 4, y: top + (1 - places[i]) * length, "dominant-baseline": "central" });
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
    const slack = (GRIP * (dimension.range[1] - dimension.range[0])) / (this.bottom - this.top);
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
    const aside = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (aside && event.ctrlKey && dimension !== this.dimensions.at(-1)) {
      event.preventDefault();
      this.move(dimension, this.dimensions.indexOf(dimension) + aside);
      return;
    }
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
      const value = (place) => (scale === "log" ? 10 ** Math.max(place, lowest) : Math.max(place, lowest));
      const values = above.map(([low, high]) => [low <= dimension.range[0] && dimension.ends ? -Infinity : value(low), high >= dimension.range[1] && dimension.ends ? Infinity : value(high)]);
      return { ...condition, ranges: values };
    });
  }

  lowest({ values: places, absent, range }) {
    const above = absent + (range[1] - range[0]) * 1e-6; // places come in single precision
    return places.reduce((least, place) => (place > above && place < least ? place : least), Infinity);
  }

  /** Which lines pass through all brushes. */
  selected() {
    const brushed = this.dimensions.filter(({ name }) => this.brushes.has(name)).map(({ name, places }) => [places, this.brushes.get(name)]);
    return this.meta.trials.map((_, i) => (!this.passes || this.passes(this.meta.rows[i])) && brushed.every(([places, ranges]) => ranges.some(([low, high]) => places[i] >= low && places[i] <= high)));
  }

  showBrushes() {
    for (const [i, group] of [...this.axes.querySelectorAll("g.axis")].entries()) {
      const dimension = this.visible[i];
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
    for (const { x, ys } of this.visible) pen.lineTo(x, ys[i]);
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
    if (!this.star) return;
    const { x, ys } = this.dimensions.at(-1);
    const [y, style] = [ys[this.star.line], getComputedStyle(this.element)];
    pen.beginPath();
    for (let i = 0; i < 10; i++) {
      const [angle, reach] = [(i * Math.PI) / 5 - Math.PI / 2, i % 2 ? 4 : 9];
      pen.lineTo(x + reach * Math.cos(angle), y + reach * Math.sin(angle));
    }
    pen.closePath();
    [pen.fillStyle, pen.strokeStyle, pen.lineWidth] = ["#E69F00", style.color, 1];
    pen.fill();
    pen.stroke();
    [pen.font, pen.fillStyle, pen.strokeStyle, pen.lineWidth] = [`600 12px ${style.fontFamily}`, style.color, style.backgroundColor, 4];
    pen.strokeText(this.star.text, x + 12, y + 4);
    pen.fillText(this.star.text, x + 12, y + 4);
  }

  drawMarked() {
    const pen = this.marked.getContext("2d");
    pen.clearRect(0, 0, this.width, this.height);
    const style = getComputedStyle(this.element);
    const marked = [...new Set([this.highlighted, this.pointed])].filter((trial) => this.meta?.trials.includes(trial));
    this.lines.style.opacity = marked.length ? 0.4 : "";
    for (const trial of marked) {
      const i = this.meta.trials.indexOf(trial);
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
      this.tip.textContent = `${trial}: ${goal.name} ${short(goal.scale === "log" ? 10 ** goal.values[found] : goal.values[found])}`;
      const box = this.element.getBoundingClientRect();
      const left = clamp(event.clientX - box.left + 12, 0, Math.max(0, box.width - this.tip.offsetWidth - 8));
      [this.tip.style.left, this.tip.style.top] = [`${left}px`, `${event.clientY - box.top + 14}px`];
    }
    if (trial === this.pointed) return;
    this.pointed = trial;
    this.axes.style.cursor = trial === null ? "" : "pointer";
    this.drawMarked();
    this.element.dispatchEvent(new CustomEvent("point", { detail: { trial } }));
  }

  nearest(event) {
    const box = this.axes.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const right = this.visible.findIndex((dimension) => dimension.x >= x);
    if (right < 1) return null;
    const [one, other] = [this.visible[right - 1], this.visible[right]];
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
