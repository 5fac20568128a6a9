// What a figure shows, on a canvas, until Plotly, which takes a browser longer than all else, has been read.

const DIGITS = { i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array };
const SMALL = "11px system-ui, sans-serif";
const LARGE = "13px system-ui, sans-serif";

/** The numbers of a trace, which the server sends as JSON or as bytes; null where there is anything else. */
function numbers(given) {
  const found = given?.bdata ? new DIGITS[given.dtype](Uint8Array.from(atob(given.bdata), (c) => c.charCodeAt(0)).buffer) : given;
  return found?.length !== undefined && [...found].every((value) => value === null || typeof value === "number") ? found : null;
}

/** From the values of an axis to the share of its length, and where its grid is; null for an axis that is not of numbers. */
function scale(axis, values, margin) {
  if (!["linear", "log", "-", undefined].includes(axis.type)) return null;
  const place = axis.type === "log" ? Math.log10 : (value) => value;
  const places = values.map(place).filter(Number.isFinite);
  let [low, high] = axis.range ?? [Math.min(...places), Math.max(...places)];
  if (!(high > low)) [low, high] = [low - 1, low + 1];
  if (!axis.range) [low, high] = [low - margin * (high - low), high + margin * (high - low)];
  const rough = (high - low) / 6;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = axis.type === "log" ? Math.max(1, Math.round(rough)) : [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(i * step);
  const label = (at) => String(axis.type === "log" ? Number((10 ** at).toPrecision(3)) : Number.isSafeInteger(at) ? at : Number(at.toPrecision(6)));
  return { share: (value) => (place(value) - low) / (high - low), ticks, label, at: (tick) => (tick - low) / (high - low) };
}

const PATHS = {
  "triangle-up": (c, x, y, r) => PATHS["triangle-down"](c, x, y, -r),
  "triangle-down": (c, x, y, r) => { c.moveTo(x - r, y - r); c.lineTo(x + r, y - r); c.lineTo(x, y + r); c.closePath(); },
  x: (c, x, y, r) => { for (const s of [1, -1]) { c.moveTo(x - r, y - s * r); c.lineTo(x + r, y + s * r); } },
};
const circle = (c, x, y, r) => { c.moveTo(x + r, y); c.arc(x, y, r, 0, 7); };

/**
 * Draw points and lines over one axis of numbers, with the layout that Plotly gets. Returns whether it could: other figures
 * wait for Plotly.
 */
export function sketch(element, data, layout) {
  const traces = data.map((trace) => ({ ...trace, x: numbers(trace.x), y: numbers(trace.y) }));
  if (!traces.length || traces.some(({ type, x, y, xaxis }) => !["scatter", "scattergl"].includes(type) || !x || !y || (xaxis ?? "x") !== "x")) return false;
  const axisOf = (name) => layout[`yaxis${name.slice(1)}`] ?? {};
  const axes = { x: scale(layout.xaxis ?? {}, traces.flatMap(({ x }) => [...x]), 0.06) };
  for (const name of new Set(traces.map(({ yaxis }) => yaxis ?? "y"))) {
    const values = traces.filter(({ yaxis }) => (yaxis ?? "y") === name).flatMap(({ y }) => [...y]);
    axes[name] = scale(axisOf(name), values, 0.08);
  }
  if (Object.values(axes).includes(null)) return false;

  const canvas = Object.assign(document.createElement("canvas"), { className: "sketch" });
  const [width, height, dense] = [element.clientWidth, element.clientHeight, devicePixelRatio];
  Object.assign(canvas, { width: width * dense, height: height * dense });
  canvas.style.width = `${width}px`;
  const c = canvas.getContext("2d");
  c.scale(dense, dense);
  const { l = 60, r = 20, t = 60, b = 60 } = { ...layout.margin, t: layout.legend ? 60 : layout.margin?.t }; // the legend's rows
  const inner = { width: width - l - r, height: height - t - b };
  const domain = (name) => axisOf(name).domain ?? (axisOf(name).overlaying ? axisOf("y").domain : null) ?? [0, 1];
  const x = (share) => l + share * inner.width;
  const y = (name, share) => { const [from, to] = domain(name); return t + inner.height * (1 - from - share * (to - from)); };
  const text = (words, at, down, align, font) => { Object.assign(c, { font, textAlign: align }); c.fillText(words, at, down); };

  c.fillStyle = layout.font.color;
  c.strokeStyle = layout.xaxis?.gridcolor ?? "#8884";
  c.beginPath();
  for (const tick of axes.x.ticks) {
    c.moveTo(x(axes.x.at(tick)), t);
    c.lineTo(x(axes.x.at(tick)), t + inner.height);
    text(axes.x.label(tick), x(axes.x.at(tick)), t + inner.height + 16, "center", SMALL);
  }
  for (const tick of axes.y?.ticks ?? []) {
    c.moveTo(l, y("y", axes.y.at(tick)));
    c.lineTo(l + inner.width, y("y", axes.y.at(tick)));
    text(axes.y.label(tick), l - 6, y("y", axes.y.at(tick)) + 4, "right", SMALL);
  }
  c.stroke();
  text(layout.xaxis?.title?.text ?? "", l + inner.width / 2, t + inner.height + 38, "center", LARGE);
  c.save();
  c.rotate(-Math.PI / 2);
  text(layout.yaxis?.title?.text ?? "", -(t + inner.height / 2), 14, "center", LARGE);
  c.restore();

  for (const trace of traces) {
    const name = trace.yaxis ?? "y";
    c.strokeStyle = c.fillStyle = trace.line?.color ?? trace.marker?.color ?? layout.font.color;
    c.globalAlpha = trace.marker?.opacity ?? trace.opacity ?? 1;
    c.lineWidth = trace.line?.width ?? 1.5;
    c.beginPath();
    const radius = (Number(trace.marker?.size) || 6) / 2;
    const symbol = [trace.marker?.symbol].flat()[0] ?? "circle";
    const mark = PATHS[symbol.replace("-open", "")] ?? circle;
    for (let i = 0, last = null; i < trace.x.length; i++) {
      if (trace.y[i] === null) { last = null; continue; }
      const share = axes[name].share(trace.y[i]);
      const at = [x(axes.x.share(trace.x[i])), y(name, share)];
      if (trace.mode?.includes("markers")) { if (share >= 0 && share <= 1) mark(c, ...at, radius); }
      else if (last === null) c.moveTo(...at);
      else { if (trace.line?.shape === "hv") c.lineTo(at[0], last[1]); c.lineTo(...at); }
      last = at;
    }
    if (trace.mode?.includes("markers") && symbol !== "x" && !symbol.endsWith("-open")) c.fill();
    else c.stroke();
  }
  element.replaceChildren(canvas);
  return true;
}
