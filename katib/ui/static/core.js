// What every page uses: questions to the server, live streams, times in the reader's zone, keys.

/** Ask for JSON; an error carries the server's sentence. */
export async function fetchJson(address, options = {}) {
  const response = await fetch(address, { headers: { accept: "application/json" }, ...options });
  const body = response.status === 204 ? null : await response.json().catch(() => null);
  if (!response.ok) {
    const error = new Error(body?.detail ?? `the server answered ${response.status}`);
    error.status = response.status;
    error.problem = body;
    throw error;
  }
  return body;
}

/**
 * Follow a live stream until it says that there is no more.
 * `handlers` has a function for each event name; they get its data. The browser connects again by itself, and the
 * first event after that tells everything anew, so nothing is missed while a server restarts.
 */
export function follow(address, handlers) {
  const shown = document.getElementById("connection");
  const source = new EventSource(address);
  source.onopen = () => { shown.textContent = ""; };
  source.onerror = () => {
    shown.textContent = "Connection lost, trying again…";
    if (source.readyState === EventSource.CLOSED) setTimeout(() => follow(address, handlers), 2000);
  };
  for (const [name, handle] of Object.entries(handlers)) {
    source.addEventListener(name, (event) => handle(JSON.parse(event.data), source));
  }
  return source;
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
    element.title = exact;
    element.textContent = "age" in element.dataset ? duration((Date.now() - moment) / 1000) : exact;
  }
}

/** Write text into the elements that show a live value. */
export function showLive(values, root = document) {
  for (const element of root.querySelectorAll("[data-live]")) {
    const value = values[element.dataset.live];
    if (value === undefined) continue;
    element.textContent = value ?? "";
    if (element.classList.contains("state")) element.dataset.state = value;
  }
}

showTimes();
setInterval(showTimes, 10_000);
