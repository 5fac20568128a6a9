// A figure of points and lines over one pair of axes, on a canvas: what Plotly draws elsewhere, in a hundredth of its bytes.
//
// The element gets "pick" (detail.trial: its mark was clicked) and "point" (detail.trial: beneath the pointer, or null).

import { numbersOf, plain } from "./parallel.js";

const ROOM = { right: 18, bottom: 42, line: 18 };
const CHART_FONT = "12px system-ui, sans-serif";
const CLOSE = 12; // pixels from a mark that belong to it
const FAINT = 0.12; // of marks of trials that are not selected
const LEAST_ZOOM = 6; // pixels of a drag
const TRIAL = /^[a-z0-9][a-z0-9.-]*$/;

const charts = new WeakMap();

/** Whether a figure is only of points and lines over one horizontal axis. */
export const canDraw = (data) => data.length > 0 && data.every(({ type, xaxis }) => /^scatter(gl)?$/.test(type) && (xaxis ?? "x") === "x");

/** Draw a figure of the server with the layout that Plotly would get; zoom and selection of the last drawing stay. */
export function drawChart(element, data, layout) {
  if (!charts.get(element)?.root.isConnected) charts.set(element, new Chart(element));
  charts.get(element).take(data, layout);
}

/** The chart of an element, if there is one. */
export const chartOf = (element) => charts.get(element);

const PATHS = {
  circle: (c, x, y, r) => { c.moveTo(x + r, y); c.arc(x, y, r, 0, 7); },
  "triangle-up": (c, x, y, r) => polygon(c, [[x - r, y + r], [x + r, y + r], [x, y - r]]),
  "triangle-down": (c, x, y, r) => polygon(c, [[x - r, y - r], [x + r, y - r], [x, y + r]]),
  square: (c, x, y, r) => polygon(c, [[x - r, y - r], [x + r, y - r], [x + r, y + r], [x - r, y + r]]),
  diamond: (c, x, y, r) => polygon(c, [[x - r, y], [x, y - r], [x + r, y], [x, y + r]]),
  hourglass: (c, x, y, r) => polygon(c, [[x - r, y - r], [x + r, y - r], [x - r, y + r], [x + r, y + r]]),
  star: (c, x, y, r) => polygon(c, [...Array(10).keys()].map((i) => {
    const [angle, reach] = [(i * Math.PI) / 5 - Math.PI / 2, i % 2 ? r * 0.45 : r * 1.15];
    return [x + reach * Math.cos(angle), y + reach * Math.sin(angle)];
  })),
  x: (c, x, y, r) => { for (const s of [1, -1]) { c.moveTo(x - r, y - s * r); c.lineTo(x + r, y + s * r); } },
  "square-x": (c, x, y, r) => { PATHS.square(c, x, y, r); PATHS.x(c, x, y, r); },
};

function polygon(c, [first, ...others]) {
  c.moveTo(...first);
  for (const point of others) c.lineTo(...point);
  c.closePath();
}

/** A value of a trace beneath the pointer, in Plotly's format. */
function formatted(value, format) {
  if (typeof value !== "number") return value ?? "";
  if (format?.endsWith("%")) return value.toLocaleString("en", { style: "percent" });
  return String(format === ".16~g" || Number.isSafeInteger(value) ? value : Number(value.toPrecision(Number(format?.match(/\d+/)?.[0] ?? 6))));
}

/** An axis: from a value to its share of the length. */
function scaleOf({ type, range, rangemode }, values, zoom) {
  const log = type === "log";
  const place = log ? Math.log10 : (value) => value;
  let [low, high] = zoom ?? range ?? [Infinity, -Infinity];
  if (!zoom && !range) {
    for (const value of values) {
      const at = place(value);
      if (value === null || !Number.isFinite(at)) continue;
      if (at < low) low = at;
      if (at > high) high = at;
    }
    if (rangemode === "tozero") low = Math.min(low, 0);
    if (!(high >= low)) [low, high] = [0, 1];
    const room = high > low ? 0.06 * (high - low) : Math.abs(low) * 0.1 || 0.5;
    [low, high] = [low - (rangemode === "tozero" && low === 0 ? 0 : room), high + room];
  }
  const whole = (step) => Array.from({ length: Math.max(0, Math.floor(high / step + 1e-9) - Math.ceil(low / step - 1e-9) + 1) }, (_, i) => (Math.ceil(low / step - 1e-9) + i) * step);
  let ticks;
  if (log && high - low > 0.5) {
    const step = Math.max(1, Math.round((high - low) / 6));
    ticks = whole(step);
    if (high - low < 2.5) ticks = whole(1).concat(Math.floor(low)).flatMap((decade) => [1, 2, 5].map((part) => decade + Math.log10(part))).filter((at, i, all) => at >= low && at <= high && all.indexOf(at) === i);
  } else {
    const [from, to] = log ? [10 ** low, 10 ** high] : [low, high];
    const rough = (to - from) / 6;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
    ticks = Array.from({ length: Math.floor(to / step) - Math.ceil(from / step) + 1 }, (_, i) => place((Math.ceil(from / step) + i) * step));
  }
  const label = (at) => String(Number((log ? 10 ** at : at).toPrecision(log ? 4 : 10)));
  return { ticks, label, share: (value) => (place(value) - low) / (high - low), at: (tick) => (tick - low) / (high - low), place: (share) => low + share * (high - low) };
}

class Chart {
  constructor(element) {
    this.element = element;
    this.zoom = null; // [low, high] of both axes, in places
    this.added = []; // traces beside those of the figure
    this.passes = null; // whether the trial of a row is selected
    const canvas = (hidden) => Object.assign(document.createElement("canvas"), { ariaHidden: hidden });
    [this.base, this.over] = [canvas(null), canvas("true")];
    this.base.setAttribute("role", "img");
    this.tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
    this.plot = Object.assign(document.createElement("div"), { className: "plot" });
    this.plot.append(this.base, this.over);
    this.note = Object.assign(document.createElement("p"), { className: "note" });
    this.root = Object.assign(document.createElement("div"), { className: "chart" });
    this.root.append(this.plot, this.note, this.tip);
    element.replaceChildren(this.root);
    this.over.addEventListener("pointermove", (event) => this.move(event));
    this.over.addEventListener("pointerleave", () => this.point(null));
    this.over.addEventListener("pointerdown", (event) => this.press(event));
    this.over.addEventListener("dblclick", () => { this.zoom = null; this.draw(); });
    new ResizeObserver(() => this.traces && this.draw()).observe(this.plot);
  }

  take(data, layout) {
    [this.given, this.layout] = [data, layout];
    const own = (values) => (values?.bdata ? numbersOf(values) : values ?? []);
    const moved = new Set(this.added.flatMap(({ customdata }) => customdata));
    const others = moved.size ? data.map((trace) => (trace.customdata ? { ...trace, y: Array.from(own(trace.y), (y, i) => (moved.has(trace.customdata[i]) ? null : y)) } : trace)) : data;
    this.traces = [...others, ...this.added].filter(({ visible }) => visible !== false && visible !== "legendonly").map((trace) => ({
      ...trace, x: own(trace.x), y: own(trace.y), ids: trace.ids && own(trace.ids), axis: trace.yaxis ?? "y", marks: trace.mode?.includes("markers"),
      symbol: [trace.marker?.symbol].flat()[0] ?? "circle", size: Number(trace.marker?.size) || 6,
    }));
    this.marks = new Map(); // name of a trial -> its trace and index
    for (const trace of this.traces) if (trace.customdata) trace.customdata.forEach((name, i) => this.marks.set(name, [trace, i]));
    this.note.textContent = (layout.annotations ?? []).map(({ text }) => plain(text.replaceAll("<br>", " "))).join(" ");
    this.base.ariaLabel = `${plain(layout.yaxis?.title?.text ?? "")} by ${plain(layout.xaxis?.title?.text ?? "")}: ${this.marks.size} trials`;
    this.draw();
  }

  /** Show traces beside those of the figure, in place of its marks of their trials. */
  add(traces) {
    this.added = traces;
    if (this.given) this.take(this.given, this.layout);
  }

  /** Show only the trials for whose row a function is true in full colour; null: all. */
  select(passes) {
    this.passes = passes;
    if (this.traces) this.draw();
  }

  /** Have the mark of a trial stand out, or none (null). */
  highlight(trial) {
    const found = this.marks?.get(trial);
    this.base.style.opacity = found ? 0.3 : "";
    const pen = this.over.getContext("2d");
    pen.clearRect(0, 0, this.width, this.height);
    if (!found) return;
    const [x, y] = this.at(...found);
    this.mark(pen, found[0], [[x, y]], 1);
    pen.beginPath();
    pen.strokeStyle = this.layout.font.color;
    pen.lineWidth = 2;
    pen.arc(x, y, found[0].size / 2 + 4, 0, 7);
    pen.stroke();
  }

  /** The place of a value of a trace, at the edge if it is beyond an axis. */
  at(trace, i) {
    const [across, up] = [this.x.share(trace.x[i]), this.ys[trace.axis].share(trace.y[i])];
    const inside = (share) => Math.min(Math.max(share, 0), 1);
    const beyond = across !== inside(across) || up !== inside(up);
    return [this.left + inside(across) * this.inner, this.y(trace.axis, inside(up)), beyond];
  }

  y(axis, share) {
    const given = this.layout[`yaxis${axis.slice(1)}`] ?? {};
    const [from, to] = given.domain ?? [0, 1];
    return this.top + this.depth * (1 - from - share * (to - from));
  }

  rowOf = (trace, i) => (trace.ids ? trace.ids[i] : trace.x[i] - 1);

  draw() {
    [this.width, this.height] = [this.plot.clientWidth, this.plot.clientHeight];
    if (!this.width || !this.height) return;
    const dense = globalThis.devicePixelRatio || 1;
    for (const canvas of [this.base, this.over]) {
      [canvas.width, canvas.height] = [this.width * dense, this.height * dense];
      canvas.getContext("2d").setTransform(dense, 0, 0, dense, 0, 0);
    }
    const pen = this.base.getContext("2d");
    const { layout } = this;
    pen.font = CHART_FONT;
    const values = (of, key) => of.flatMap((trace) => [...trace[key]]);
    this.x = scaleOf(layout.xaxis ?? {}, values(this.traces, "x"), this.zoom?.[0]);
    this.ys = {};
    for (const axis of new Set(["y", ...this.traces.map((trace) => trace.axis)])) {
      const own = this.traces.filter((trace) => trace.axis === axis);
      this.ys[axis] = scaleOf(layout[`yaxis${axis.slice(1)}`] ?? {}, values(own, "y"), axis === "y" ? this.zoom?.[1] : null);
    }
    const strip = layout.yaxis2?.ticktext?.[0] ?? "";
    const widest = Math.max(...[strip, ...this.ys.y.ticks.map(this.ys.y.label)].map((text) => pen.measureText(text).width));
    this.left = 32 + widest;
    this.inner = this.width - this.left - ROOM.right;
    this.top = this.legend(pen) + 14;
    this.depth = this.height - this.top - ROOM.bottom;
    this.grid(pen, strip);
    pen.save();
    pen.beginPath();
    pen.rect(this.left - 9, this.top - 9, this.inner + 18, this.depth + 18);
    pen.clip();
    for (const trace of this.traces) this.trace(pen, trace);
    pen.restore();
    this.highlight(this.pointed ?? null);
    this.base.dataset.drawn = this.marks.size;
  }

  /** The names of traces in lines that fit; returns their height. */
  legend(pen) {
    let [x, y] = [this.left, 20];
    pen.textAlign = "left";
    if (this.layout.showlegend === false) return 0;
    for (const trace of this.traces.filter(({ name, showlegend }) => name && showlegend !== false)) {
      const name = plain(trace.name);
      const width = 26 + pen.measureText(name).width + 14;
      if (x > this.left && x + width > this.width) [x, y] = [this.left, y + ROOM.line];
      if (trace.marks) this.mark(pen, trace, [[x + 9, y - 4]], 1);
      else this.line(pen, trace, [[x, y - 4], [x + 18, y - 4]]);
      pen.globalAlpha = 1;
      pen.fillStyle = this.layout.font.color;
      pen.fillText(name, x + 26, y);
      x += width;
    }
    return y;
  }

  grid(pen, strip) {
    const { layout, left, inner, top, depth } = this;
    const bottom = top + depth;
    pen.strokeStyle = layout.xaxis?.gridcolor ?? "#8884";
    pen.lineWidth = 1;
    pen.beginPath();
    pen.fillStyle = layout.font.color;
    let free = -Infinity;
    for (const tick of this.x.ticks) {
      const [at, text] = [left + this.x.at(tick) * inner, this.x.label(tick)];
      pen.moveTo(at, top);
      pen.lineTo(at, bottom);
      const half = pen.measureText(text).width / 2;
      if (at - half < free) continue;
      pen.textAlign = "center";
      pen.fillText(text, at, bottom + 16);
      free = at + half + 8;
    }
    pen.textAlign = "right";
    for (const tick of this.ys.y.ticks) {
      const at = this.y("y", this.ys.y.at(tick));
      pen.moveTo(left, at);
      pen.lineTo(left + inner, at);
      pen.fillText(this.ys.y.label(tick), left - 7, at + 4);
    }
    if (strip) pen.fillText(strip, left - 7, this.y("y2", 0.5) + 4);
    pen.stroke();
    pen.textAlign = "center";
    pen.fillText(plain(layout.xaxis?.title?.text ?? ""), left + inner / 2, bottom + 36);
    pen.save();
    pen.rotate(-Math.PI / 2);
    pen.fillText(plain(layout.yaxis?.title?.text ?? ""), -(top + depth / 2), 15);
    pen.restore();
  }

  line(pen, trace, points) {
    pen.globalAlpha = (trace.opacity ?? 1) * (this.passes && points.length > 2 ? 0.4 : 1);
    pen.strokeStyle = trace.line?.color ?? this.layout.font.color;
    pen.lineWidth = trace.line?.width ?? 2;
    pen.setLineDash({ dot: [2, 3], dash: [7, 4] }[trace.line?.dash] ?? []);
    pen.beginPath();
    points.forEach(([x, y], i) => {
      if (i && trace.line?.shape === "hv") pen.lineTo(x, points[i - 1][1]);
      pen.lineTo(x, y);
    });
    pen.fillStyle = trace.fillcolor;
    if (trace.fill === "toself") pen.fill();
    else pen.stroke();
    pen.setLineDash([]);
  }

  mark(pen, trace, points, alpha, symbol = trace.symbol) {
    const { color = trace.line?.color ?? this.layout.font.color, opacity = 1, line } = trace.marker ?? {};
    pen.globalAlpha = alpha * opacity;
    pen.fillStyle = pen.strokeStyle = color;
    pen.lineWidth = 1.5;
    pen.beginPath();
    const path = PATHS[symbol.replace("-open", "")] ?? PATHS.circle;
    for (const [x, y] of points) path(pen, x, y, trace.size / 2);
    if (symbol === "x" || symbol.endsWith("-open")) pen.stroke();
    else pen.fill();
    if (!line?.color) return;
    [pen.strokeStyle, pen.lineWidth] = [this.layout.font.color, line.width ?? 1];
    pen.stroke();
  }

  trace(pen, trace) {
    const places = Array.from(trace.x, (_, i) => i).filter((i) => trace.y[i] !== null);
    if (trace.mode?.includes("lines")) {
      const up = (i) => this.y(trace.axis, this.ys[trace.axis].share(trace.y[i]));
      this.line(pen, trace, places.map((i) => [this.left + this.x.share(trace.x[i]) * this.inner, up(i)]));
    }
    if (!trace.marks) return;
    const groups = { faint: [], full: [], edge: [], faintEdge: [] };
    for (const i of places) {
      const point = this.at(trace, i);
      if (point[2] && this.zoom) continue;
      const full = !this.passes || !trace.customdata || this.passes(this.rowOf(trace, i));
      groups[point[2] ? (full ? "edge" : "faintEdge") : full ? "full" : "faint"].push(point);
    }
    this.mark(pen, trace, groups.faint, FAINT);
    this.mark(pen, trace, groups.faintEdge, FAINT, "triangle-up-open");
    this.mark(pen, trace, groups.full, 1);
    this.mark(pen, trace, groups.edge, 1, "triangle-up-open");
    if (!trace.mode.includes("text")) return;
    pen.globalAlpha = 1;
    pen.fillStyle = this.layout.font.color;
    for (const i of places) {
      const [x, y] = this.at(trace, i);
      const text = plain(trace.text[i] ?? "");
      const half = pen.measureText(text).width / 2;
      pen.strokeStyle = getComputedStyle(this.element).backgroundColor;
      pen.lineWidth = 4;
      pen.textAlign = "center";
      const where = [Math.min(Math.max(x, this.left + half), this.left + this.inner - half), y - trace.size / 2 - 7 < this.top + 8 ? y + trace.size / 2 + 15 : y - trace.size / 2 - 7];
      pen.strokeText(text, ...where);
      pen.fillText(text, ...where);
    }
  }

  // --- the pointer

  /** The mark nearest to a place; where there is none close to it, the corner of a line. */
  nearest(x, y, marks = true) {
    let [found, least] = [null, CLOSE];
    for (const trace of this.traces) {
      if (Boolean(trace.marks) !== marks || trace.hoverinfo === "skip" || trace.name === "best") continue;
      for (let i = trace.x.length - 1; i >= 0; i--) {
        if (trace.y[i] === null) continue;
        const [across, down, beyond] = this.at(trace, i);
        const distance = Math.hypot(across - x, down - y);
        if (distance < least && !(beyond && this.zoom)) [found, least] = [[trace, i], distance];
      }
    }
    return found ?? (marks ? this.nearest(x, y, false) : null);
  }

  move(event) {
    if (event.buttons) return;
    this.point(this.nearest(event.offsetX, event.offsetY), event);
  }

  point(found, event) {
    this.tip.hidden = found === null;
    const trial = found ? this.trialOf(found) : null;
    this.over.style.cursor = trial ? "pointer" : "";
    if (found) {
      const [trace, i] = found;
      const of = (key) => (typeof trace[key] === "string" ? trace[key] : trace[key]?.[i]);
      const [template, extra = ""] = (trace.hovertemplate ?? "").replace("</extra>", "").split("<extra>");
      const text = (template + (extra && `<br>${extra}`)).replaceAll(/%\{(\w+)(?::([^}]*))?\}/g, (_, key, format) => formatted(of(key), format));
      this.tip.textContent = text.split("<br>").map(plain).join("\n");
      const box = this.root.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      this.tip.style.left = `${Math.max(0, Math.min(x + 14, box.width - this.tip.offsetWidth - 8))}px`;
      this.tip.style.top = `${Math.max(0, Math.min(y + 14, box.height - this.tip.offsetHeight - 4))}px`;
    }
    if (trial === (this.pointed ?? null)) return;
    this.pointed = trial;
    this.highlight(trial);
    this.element.dispatchEvent(new CustomEvent("point", { detail: { trial } }));
  }

  trialOf([trace, i]) {
    const name = trace.customdata?.[i];
    return TRIAL.test(name ?? "") ? name : null;
  }

  /** A click opens a trial; a drag of the mouse zooms, and a double click goes back. */
  press(event) {
    if (event.button !== 0) return;
    const start = [event.offsetX, event.offsetY];
    const found = this.nearest(...start);
    const box = (end) => [0, 1].map((i) => [start[i], end[i]].sort((one, other) => one - other));
    const large = (end) => box(end).every(([from, to]) => to - from > LEAST_ZOOM);
    const drag = (moved) => {
      if (event.pointerType !== "mouse") return;
      const [[left, right], [top, bottom]] = box([moved.offsetX, moved.offsetY]);
      const pen = this.over.getContext("2d");
      pen.clearRect(0, 0, this.width, this.height);
      [pen.strokeStyle, pen.lineWidth] = [this.layout.font.color, 1];
      pen.strokeRect(left, top, right - left, bottom - top);
    };
    const end = (last) => {
      for (const name of ["pointermove", "pointerup", "pointercancel"]) this.over.removeEventListener(name, name === "pointermove" ? drag : end);
      const stop = [last.offsetX, last.offsetY];
      if (last.type === "pointercancel") return;
      if (event.pointerType === "mouse" && large(stop)) {
        const [[left, right], [top, bottom]] = box(stop);
        const up = (y) => { const [low, high] = [this.y("y", 0), this.y("y", 1)]; return this.ys.y.place((low - y) / (low - high)); };
        this.zoom = [[left, right].map((x) => this.x.place((x - this.left) / this.inner)), [up(bottom), up(top)]];
        this.draw();
      } else if (found && this.trialOf(found)) this.element.dispatchEvent(new CustomEvent("pick", { detail: { trial: this.trialOf(found) } }));
    };
    this.over.setPointerCapture(event.pointerId);
    this.over.addEventListener("pointermove", drag);
    this.over.addEventListener("pointerup", end);
    this.over.addEventListener("pointercancel", end);
  }
}
