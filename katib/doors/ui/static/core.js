// What every page uses: questions to the server, live streams, parts of pages, times in the reader's zone, keys.

/** Ask for something; an error carries the server's sentence. */
async function ask(address, options) {
  const response = await fetch(address, options).catch((error) => {
    if (error.name === "AbortError") throw error;
    const changes = !["GET", undefined].includes(options?.method);
    throw new Error(`The server does not answer.${changes ? " Nothing was changed." : ""}`); // not "Failed to fetch"
  });
  if (response.ok) return response;
  const body = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return null;
  });
  const error = new Error(body?.detail ?? `the server answered ${response.status}`);
  error.status = response.status;
  error.problem = body;
  throw error;
}

/** Ask for JSON. */
export async function fetchJson(address, options = {}) {
  const response = await ask(address, { ...options, headers: { accept: "application/json", ...options.headers } });
  return response.status === 204 ? null : response.json();
}

/** Send JSON. */
export function sendJson(method, address, body) {
  const options = { method, headers: { "content-type": "application/json" } };
  return fetchJson(address, body === undefined ? { method } : { ...options, body: JSON.stringify(body) });
}

/** Ask for a part of a page. */
export async function fetchHtml(address, options = {}) {
  return (await ask(address, options)).text();
}

// What was pressed and is not released yet. A button that is replaced in between would never get its click.
let pressed = null;
const postponed = new Map();
addEventListener("pointerdown", (event) => { pressed = event.target; }, true);
for (const type of ["pointerup", "pointercancel", "dragend"]) {
  addEventListener(type, () => setTimeout(() => { // after the click
    pressed = null;
    for (const [element, html] of postponed) swap(element, html);
    postponed.clear();
  }), true);
}

/**
 * Put a new part of a page in place of what an element holds, unless it is the same, and not before a button in it that
 * is pressed is released. The element with focus keeps it by its id, and so does a part that was scrolled. Fires "shown".
 */
export function swap(element, html) {
  if (element.shownHtml === html) {
    postponed.delete(element);
    return;
  }
  if (pressed && element.contains(pressed)) {
    postponed.set(element, html);
    return;
  }
  element.shownHtml = html;
  const focused = element.contains(document.activeElement) ? document.activeElement.id : "";
  const left = element.querySelector(".scroll")?.scrollLeft ?? 0;
  const template = document.createElement("template");
  template.innerHTML = html;
  element.replaceChildren(template.content);
  if (left) element.querySelector(".scroll")?.scrollTo({ left });
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  showTimes(element);
  tick(element);
  element.dispatchEvent(new CustomEvent("shown"));
}

// --- what the page follows: one connection of the browser carries it for all of its pages ---

const streams = new Map(); // by key
const page = crypto.getRandomValues(new Uint32Array(2)).join("-");
let port = null;
let lost = null; // since when the server does not answer

function connect() {
  const script = new URL("streams.js", import.meta.url);
  try {
    port = new SharedWorker(script, "katib streams").port;
  } catch { // there are none on phones, nor where cookies of a frame are refused
    const own = new MessageChannel();
    port = own.port1;
    import(script).then(() => globalThis.serveStreams(own.port2));
  }
  port.onmessage = ({ data }) => {
    if ("lost" in data) { lost = data.lost; showConnection(); return; }
    document.body.dataset.live = "true";
    streams.get(data.to)?.take(data);
  };
}

/**
 * Follow a live stream or a log while the page is seen, until it is closed. Returns what closes it.
 * `handlers` has a function for each name of an event; they get its data and what closes the stream. `begin` is called at
 * the beginning of each answer, `over` at its end. After an interruption a stream continues behind its last event with an
 * id, or begins again with the whole state, so nothing is missed while a server restarts.
 */
export function follow(address, handlers) {
  const key = `${page} ${streams.size} ${Math.random()}`;
  const stream = {
    take({ name, data, id }) { stream.last = id || stream.last; handlers[name]?.(data, stream); },
    open: false,
    over: false,
    turn(seen) {
      const open = seen && !stream.over;
      if (open === stream.open) return;
      stream.open = open;
      if (!port) connect();
      port.postMessage(open ? { open: key, address, last: stream.last } : { close: key });
    },
    close() { stream.over = true; stream.turn(false); streams.delete(key); },
  };
  streams.set(key, stream);
  stream.turn(!document.hidden);
  return stream;
}

const turn = (seen) => { for (const stream of [...streams.values()]) stream.turn(seen); };
document.addEventListener("visibilitychange", () => turn(!document.hidden));
addEventListener("pagehide", () => turn(false));
addEventListener("pageshow", () => turn(!document.hidden));

const ago = Object.assign(document.createElement("span"), { ariaHidden: "true" }); // a second is not read out

/** Show that the server does not answer: since when, and so of when the page's data are. */
function showConnection() {
  const shown = document.getElementById("connection");
  document.body.classList.toggle("disconnected", Boolean(lost));
  ago.textContent = ` ${duration((Date.now() - lost) / 1000)}`;
  if (lost && !shown.contains(ago)) {
    shown.replaceChildren("Disconnected", ago, `, data of ${new Date(lost).toLocaleTimeString()}`);
  } else if (!lost && shown.contains(ago)) shown.replaceChildren();
}
setInterval(() => { if (lost) showConnection(); }, 1000);

/** Show that what the page is about does not exist any more: it stays to be read, and nothing of it can be changed. */
export function showGone(problem) {
  document.body.classList.add("gone");
  document.getElementById("connection").textContent = problem.detail;
  for (const control of document.querySelectorAll("main .headline .actions, main [data-marks-of]")) control.remove();
  for (const dialog of document.querySelectorAll("dialog:modal")) dialog.close();
}

/** Run a function at most once in so many milliseconds; the last call is never lost. */
export function atMostEvery(milliseconds, run) {
  let timer = null;
  let last = 0;
  return () => {
    if (timer !== null) return;
    timer = setTimeout(() => { timer = null; last = Date.now(); run(); }, Math.max(0, last + milliseconds - Date.now()));
  };
}

const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

/** How long something ran: as a duration, below ten seconds with one decimal. */
export function runTime(seconds) {
  return seconds > 0 && seconds < 10 ? `${seconds.toFixed(1)}s` : duration(seconds);
}

/** A duration in at most two units, as kubectl writes ages. */
export function duration(seconds) {
  const total = Math.max(0, Math.floor(seconds));
  const first = UNITS.findIndex(([, size]) => total >= size);
  if (first < 0) return "0s";
  const [unit, size] = UNITS[first];
  const rest = UNITS[first + 1];
  const more = rest ? Math.floor((total % size) / rest[1]) : 0;
  return `${Math.floor(total / size)}${unit}${more ? more + rest[0] : ""}`;
}

/** Show every time in the reader's zone; an age says the exact time when pointed at. */
export function showTimes(root = document) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(element.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    const exact = moment.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
    const text = "age" in element.dataset ? duration((Date.now() - moment) / 1000) : exact;
    if (element.title !== exact) element.title = exact;
    if (element.textContent !== text) element.textContent = text;
  }
}

const TURNS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Output of a program with marks that turn the direction of text, which make a line read as what it is not, as escapes. */
export function withMarksShown(text) {
  return text.replace(TURNS, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Put text on the clipboard. Where the browser has none for this address, the old way is left. */
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = Object.assign(document.createElement("textarea"), { value: text, className: "hidden" });
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** Say something for a moment, to eyes and to screen readers. */
export function say(text) {
  let element = document.getElementById("said");
  if (!element) {
    element = Object.assign(document.createElement("div"), { id: "said", role: "status" });
    document.body.append(element);
  }
  element.textContent = text;
  clearTimeout(element.timer);
  element.timer = setTimeout(() => { element.textContent = ""; }, 4000);
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy], [data-copy-from]");
  if (!button) return;
  const text = button.dataset.copy ?? document.getElementById(button.dataset.copyFrom).textContent;
  const before = button.textContent;
  try {
    await copyText(text);
    say(`Copied${button.dataset.copy ? ` as ${before}` : ""}.`);
  } catch {
    say("The browser did not let the page copy.");
  }
});

// A menu closes when something else is clicked, and by Escape, which gives the focus back to what opened it.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

/** Keys of all pages: what they do, and how the help says it. A page adds its own. */
const KEYS = new Map([
  ["/", ["search", () => focusOn(document.querySelector("[data-search]"))]],
  ["j", ["next row", () => step(1)]],
  ["k", ["previous row", () => step(-1)]],
  ["g e", ["experiments", () => { location.href = new URL("./", document.baseURI); }]],
  ["g n", ["new experiment", () => { location.href = new URL("new", document.baseURI); }]],
  ["?", ["these keys", showKeys]],
]);

/** Have a key, or two one after the other as `g x`, do something on this page. */
export function onKey(keys, tells, run) {
  KEYS.set(keys, [tells, run]);
}

function focusOn(element) {
  element?.focus();
  element?.select?.();
}

/** Move the focus to the next or the previous row of the table of the page. */
export function step(by) {
  const rows = [...document.querySelectorAll("[data-rows] a.row")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
  rows[next].focus();
  rows[next].scrollIntoView({ block: "nearest" });
}

function showKeys() {
  let dialog = document.getElementById("keys");
  if (!dialog) {
    dialog = Object.assign(document.createElement("dialog"), { id: "keys" });
    dialog.setAttribute("aria-labelledby", "keys-title");
    document.body.append(dialog);
  }
  const list = document.createElement("dl");
  for (const [keys, [tells]] of [...KEYS, ["Enter", ["open the row"]], ["Esc", ["close"]]]) {
    const term = document.createElement("dt");
    term.append(...keys.split(" ").flatMap((key) => [Object.assign(document.createElement("kbd"), { textContent: key }), " "]));
    list.append(term, Object.assign(document.createElement("dd"), { textContent: tells }));
  }
  const close = Object.assign(document.createElement("button"), { textContent: "Close", type: "button" });
  close.addEventListener("click", () => dialog.close());
  const foot = Object.assign(document.createElement("div"), { className: "foot" });
  foot.append(close);
  const title = Object.assign(document.createElement("h2"), { id: "keys-title", textContent: "Keys" });
  dialog.replaceChildren(title, list, foot);
  dialog.showModal();
}

let begun = ""; // the first of two keys

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    const menu = event.target.closest?.("details.menu[open]");
    if (menu) { menu.open = false; menu.querySelector("summary").focus(); }
    else if (event.target.matches?.("input[data-search]")) event.target.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]") || document.querySelector("dialog:modal")) return;
  const found = KEYS.get(begun ? `${begun} ${event.key}` : event.key);
  if (found) event.preventDefault();
  const starts = !begun && [...KEYS.keys()].some((keys) => keys.startsWith(`${event.key} `));
  begun = starts ? event.key : "";
  if (starts) setTimeout(() => { begun = ""; }, 1500);
  found?.[1]();
});

/** Have the times of what runs go on. */
export function tick(root = document) {
  if (lost) return; // nobody knows whether it still runs
  for (const element of root.querySelectorAll("[data-since]")) {
    element.textContent = duration((Date.now() - new Date(element.dataset.since)) / 1000);
  }
}

showTimes();
tick();
setInterval(showTimes, 10_000);
setInterval(tick, 1000);
