// The output of a trial: followed as it comes, searched, and never more than the last lines of it on the page.

import { follow, withMarksShown } from "./core.js";

const MOST_LINES = 5000;
const CHUNK_LINES = 250; // removed together
const LONGEST_LINE = 5000;
const FLUSH_MILLISECONDS = 100;
const MOST_MATCHES = 2000; // marked; all are counted

// Commands to a terminal: colours, titles, cursor movements. They are left out.
const COMMANDS = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])/g;
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f]/g;

/** A line as text: without commands to a terminal, other controls shown, what a carriage return replaced gone. */
export function plainLine(line) {
  let text = line.endsWith("\r") ? line.slice(0, -1) : line;
  text = text.slice(text.lastIndexOf("\r") + 1).replace(COMMANDS, "");
  text = text.replace(CONTROLS, (c) => (c === "\u007f" ? "\u2421" : String.fromCharCode(0x2400 + c.charCodeAt(0))));
  text = withMarksShown(text);
  if (text.length <= LONGEST_LINE) return text;
  return `${text.slice(0, LONGEST_LINE)}… (${(text.length - LONGEST_LINE).toLocaleString()} more characters)`;
}

/** The log of a trial in a section of the page; `address` is that of its output. */
export class LogView {
  constructor(section, address) {
    const part = (name) => section.querySelector(`[data-log-${name}]`);
    [this.lines, this.status, this.search, this.matches] = ["lines", "status", "search", "matches"].map(part);
    [this.follow, this.replica, this.container, this.download] = ["follow", "replica", "container", "download"].map(part);
    this.section = section;
    this.address = address;
    this.found = [];
    this.current = -1;
    this.lines.addEventListener("scroll", () => this.#scrolled());
    this.follow.addEventListener("change", () => this.#toEnd());
    part("wrap").addEventListener("change", (event) => this.lines.classList.toggle("wraps", event.target.checked));
    this.search.addEventListener("input", () => this.#find(true));
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { event.preventDefault(); this.#go(event.shiftKey ? -1 : 1); }
      if (event.key === "Escape") { this.search.value = ""; this.#find(true); this.lines.focus(); }
    });
    part("next").addEventListener("click", () => this.#go(1));
    part("previous").addEventListener("click", () => this.#go(-1));
    this.replica.addEventListener("change", () => { this.#offerContainers(); this.start(); });
    this.container.addEventListener("change", () => this.start());
  }

  /** Offer these replicas, `{name, containers}`; the one that is shown stays chosen. */
  offer(replicas) {
    this.replicas = replicas;
    fill(this.replica, replicas.map(({ name }) => name), "primary");
    this.section.querySelector("[data-replicas]").hidden = replicas.length < 2;
    this.#offerContainers();
  }

  #offerContainers() {
    const chosen = this.replicas.find(({ name }) => name === this.replica.value) ?? this.replicas[0];
    const names = chosen?.containers ?? [];
    fill(this.container, names, "primary");
    this.section.querySelector("[data-containers]").hidden = names.length < 2;
  }

  /** Whether output is being read. */
  get isReading() { return Boolean(this.stream); }

  /** Begin with what is chosen, and continue until the log ends; again after an interruption. */
  start() {
    this.stream?.close();
    const chosen = new URLSearchParams();
    for (const [key, select] of [["replica", this.replica], ["container", this.container]]) {
      if (select.value) chosen.set(key, select.value);
    }
    this.download.href = `${this.address}?${chosen}`;
    chosen.set("follow", "true");
    chosen.set("tail", MOST_LINES);
    this.#clear();
    this.say("Reading the log…");
    this.stream = follow(`${this.address}?${chosen}`, {
      begin: () => {
        this.place = this.follow.checked ? 0 : this.lines.scrollTop; // of a reader who comes back to it
        this.#clear();
        this.#flushSoon();
      },
      text: (text) => { this.#take(text); this.#flushSoon(); },
      problem: (problem) => { this.#end(); this.say(problem.detail); },
      over: () => { this.ended = true; this.#end(); this.#flush(); },
    });
  }

  #end() {
    this.stream.close();
    this.stream = null;
  }

  #take(text) {
    const parts = text.split("\n");
    parts[0] = this.partial + parts[0];
    this.partial = parts.pop();
    // A program that never ends its line must not fill the memory of the page.
    if (this.partial.length > 64 * LONGEST_LINE) this.partial = this.partial.slice(-32 * LONGEST_LINE);
    this.total += parts.length;
    this.pending = this.pending.length ? this.pending.concat(parts) : parts;
    if (this.pending.length > 2 * MOST_LINES) this.pending = this.pending.slice(-MOST_LINES);
  }

  #flushSoon() {
    if (this.timer !== null) return;
    this.timer = setTimeout(() => { this.timer = null; this.#flush(); }, FLUSH_MILLISECONDS);
  }

  #flush() {
    const fresh = this.pending.slice(-MOST_LINES);
    this.pending = [];
    for (let first = 0; first < fresh.length;) {
      let chunk = this.tail.previousElementSibling;
      if (!chunk || chunk.lineCount >= CHUNK_LINES) {
        chunk = Object.assign(document.createElement("span"), { lineCount: 0 });
        this.tail.before(chunk);
      }
      const some = fresh.slice(first, first + CHUNK_LINES - chunk.lineCount);
      chunk.append(`${some.map(plainLine).join("\n")}\n`);
      chunk.lineCount += some.length;
      this.shown += some.length;
      first += some.length;
    }
    while (this.shown - this.lines.firstElementChild.lineCount >= MOST_LINES) {
      this.shown -= this.lines.firstElementChild.lineCount;
      this.lines.firstElementChild.remove();
    }
    this.tail.textContent = plainLine(this.partial);
    this.#sayHowMuch();
    if (this.search.value) this.#find(false);
    if (this.place) { this.lines.scrollTop = this.place; this.place = 0; }
    this.#toEnd();
  }

  #clear() {
    clearTimeout(this.timer);
    Object.assign(this, { timer: null, partial: "", pending: [], total: 0, shown: 0, ended: false });
    this.tail = Object.assign(document.createElement("span"), { lineCount: 0 });
    this.lines.replaceChildren(this.tail);
    this.#find(true);
  }

  #toEnd() {
    if (this.follow.checked) this.lines.scrollTop = this.lines.scrollHeight;
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.lines;
    const isAtEnd = scrollTop + clientHeight >= scrollHeight - 4;
    if (!isAtEnd && scrollTop < (this.lastTop ?? 0)) this.follow.checked = false; // the user scrolled up
    this.lastTop = scrollTop;
  }

  /** Say something below the log. */
  say(text) { this.status.textContent = text; }

  #sayHowMuch() {
    const cut = this.total > this.shown || this.total >= MOST_LINES;
    const lines = `${this.shown.toLocaleString()} line${this.shown === 1 ? "" : "s"}`;
    const size = cut ? `The last ${lines} are shown; download the log for all.` : `${lines}.`;
    if (this.ended && !this.total && !this.partial) this.say("The log has ended; nothing was printed.");
    else if (this.ended) this.say(`${size} The log has ended.`);
    else if (!this.total && !this.partial) this.say("Nothing was printed yet.");
    else this.say(size);
  }

  // --- search ---------------------------------------------------------------------------------------------------------

  #find(again) {
    const wanted = this.search.value.toLowerCase();
    const found = [];
    let count = 0;
    if (wanted) {
      const walker = document.createTreeWalker(this.lines, NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) {
        const node = walker.currentNode;
        const text = node.data.toLowerCase();
        if (text.length !== node.data.length) continue; // a letter that changes its length: places would be wrong
        for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
          count += 1;
          const range = document.createRange();
          range.setStart(node, at);
          range.setEnd(node, at + wanted.length);
          found.push(range);
          if (found.length > MOST_MATCHES) found.shift(); // the newest ones are marked
        }
      }
    }
    this.found = found;
    if (again || this.current >= found.length) this.current = -1;
    this.count = count;
    this.#mark();
  }

  #mark() {
    const wanted = this.search.value;
    const place = this.current >= 0 ? `${(this.current + 1).toLocaleString()} of ` : "";
    const words = `${place}${this.count.toLocaleString()} match${this.count === 1 ? "" : "es"}`;
    const text = wanted ? words : "";
    if (this.matches.textContent !== text) this.matches.textContent = text;
    if (!globalThis.CSS?.highlights) return;
    CSS.highlights.set("log-match", new Highlight(...this.found));
    CSS.highlights.set("log-current", new Highlight(...this.found.slice(this.current, this.current < 0 ? 0 : this.current + 1)));
  }

  #go(direction) {
    if (!this.found.length) return;
    const from = this.current < 0 && direction < 0 ? 0 : this.current;
    this.current = (from + direction + this.found.length) % this.found.length;
    this.follow.checked = false;
    this.#mark();
    const range = this.found[this.current];
    const [box, place] = [this.lines.getBoundingClientRect(), range.getBoundingClientRect()];
    this.lines.scrollBy(place.left < box.left || place.right > box.right ? place.left - box.left - 40 : 0, place.top - box.top - box.height / 3);
    if (!globalThis.CSS?.highlights) getSelection().setBaseAndExtent(range.startContainer, range.startOffset, range.endContainer, range.endOffset);
  }
}

function fill(select, names, first) {
  const chosen = select.value;
  select.replaceChildren(new Option(first, ""), ...names.map((name) => new Option(name, name)));
  select.value = names.includes(chosen) ? chosen : "";
}
