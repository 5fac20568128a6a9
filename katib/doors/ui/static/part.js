// A part of a page that answers a question of its address: a table with its filters, order and pages.

import { fetchHtml, swap } from "./core.js";
import { completing } from "./search.js";

/**
 * Keep a part of a page in step with what is asked.
 * `element` holds the part, `form` what one can ask, `data` and `page` are the addresses of the part and of the page,
 * without a question. `query` is the first question. The element tells every answer by an event `shown`.
 */
export class Part {
  #asked = null;

  constructor({ element, form, data, page, query = "", kept = {} }) {
    Object.assign(this, { element, form, data, page, kept, query: new URLSearchParams(query) });
    for (const field of form.querySelectorAll("[data-terms]")) completing(field, JSON.parse(field.dataset.terms));
    element.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-part-link]");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.ask(new URL(link.href).searchParams);
    });
    form.addEventListener("submit", (event) => { event.preventDefault(); this.#askForm(); });
    form.addEventListener("change", () => this.#askForm());
    form.addEventListener("input", (event) => { if (event.target.type === "search") this.#askForm(); });
    element.addEventListener("shown", () => this.#fillForm());
  }

  #names() {
    const fields = [...this.form.elements].filter((field) => field.name && field.type !== "hidden");
    return new Set(fields.map((field) => field.name));
  }

  #askForm() {
    const query = new URLSearchParams(this.query);
    const given = new FormData(this.form);
    for (const name of this.#names()) {
      query.delete(name);
      for (const value of given.getAll(name)) if (value) query.append(name, value);
    }
    this.ask(query);
  }

  /** Show in the form what is asked, where a link changed it. */
  #fillForm() {
    for (const field of this.form.elements) {
      if (!field.name || field.type === "hidden" || field === document.activeElement) continue;
      const values = this.query.getAll(field.name);
      if (field.type === "checkbox") { if (field.name !== "column" || values.length) field.checked = values.includes(field.value); }
      else if (field.type === "search") field.value = values[0] ?? "";
    }
  }

  /** Ask another question, from its first page on unless it names one. */
  ask(query, { page = query.get("page") } = {}) {
    const asked = new URLSearchParams(query);
    const turned = asked.get("page") !== this.query.get("page");
    asked.delete("page");
    for (const name of Object.keys(this.kept)) asked.delete(name);
    if (page && turned) asked.set("page", page);
    this.query = asked;
    const ofFigures = [...new URLSearchParams(location.search)].filter(([key]) => key.includes("."));
    const shown = new URLSearchParams([...Object.entries(this.kept), ...asked, ...ofFigures]);
    history.replaceState(null, "", `${new URL(this.page, document.baseURI)}?${shown}`);
    return this.refresh();
  }

  /** Ask the same again. */
  async refresh() {
    this.#asked?.abort();
    const asked = this.#asked = new AbortController();
    const question = new URLSearchParams([...Object.entries(this.kept), ...this.query]);
    this.element.setAttribute("aria-busy", "true");
    try {
      const html = await fetchHtml(`${this.data}?${question}`, { signal: asked.signal });
      swap(this.element, html);
    } catch (error) {
      if (error.name === "AbortError") return;
      const problem = Object.assign(document.createElement("p"), { className: "problem", textContent: error.message });
      problem.setAttribute("role", "alert");
      this.element.shownHtml = null;
      this.element.replaceChildren(problem);
    }
    if (this.#asked === asked) this.element.removeAttribute("aria-busy");
  }
}
