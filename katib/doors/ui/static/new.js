// The page New: a text, a form that says the same, and what the server thinks of it.

import { fetchJson, showTimes } from "./core.js";

const text = document.getElementById("text");
const form = document.getElementById("form");
const rows = document.getElementById("rows");
const verdict = document.getElementById("verdict");
const create = document.getElementById("create");

const json = (body) => ({ method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

/** Run a function when nothing has happened for so long; a newer call takes the place of an older one. */
function settled(milliseconds, run) {
  let timer;
  return () => { clearTimeout(timer); timer = setTimeout(run, milliseconds); };
}

// --- the draft, which a click on another page does not lose -----------------------------------------------------------

const original = text.value;
const place = `katib draft ${location.pathname}${location.search}`;
const shownDraft = document.getElementById("draft");

function keepDraft() {
  try {
    if (text.value === original) localStorage.removeItem(place);
    else localStorage.setItem(place, JSON.stringify({ text: text.value, at: new Date() }));
  } catch { /* a browser may refuse to keep anything */ }
}

function restoreDraft() {
  let draft = null;
  try { draft = JSON.parse(localStorage.getItem(place)); } catch { return; }
  if (!draft || draft.text === original) return;
  text.value = draft.text;
  shownDraft.querySelector("time").dateTime = draft.at;
  showTimes(shownDraft);
  shownDraft.hidden = false;
}

shownDraft.querySelector("button").addEventListener("click", () => {
  text.value = original;
  shownDraft.hidden = true;
  keepDraft();
  check();
  text.focus();
});

// --- the form ----------------------------------------------------------------------------------------------------------

let asked = 0; // how often the server was asked what it thinks
let extra = {}; // what the form holds and does not show: settings of algorithms

function addRow(parameter = { type: "double" }) {
  const row = document.getElementById("row").content.firstElementChild.cloneNode(true);
  for (const input of row.querySelectorAll("[data-key]")) input.value = parameter[input.dataset.key] ?? "";
  row.querySelector(".remove").addEventListener("click", () => { row.remove(); formChanged(); });
  rows.append(row);
  fitRow(row);
  return row;
}

/** Show the fields that fit the type of a parameter. */
function fitRow(row) {
  const type = row.querySelector('[data-key="type"]').value;
  const kind = type === "categorical" || type === "discrete" ? "list" : "number";
  for (const label of row.querySelectorAll("[data-for]")) label.hidden = label.dataset.for !== kind;
  row.setAttribute("aria-label", `Parameter ${row.querySelector('[data-key="name"]').value}`);
}

function showForm(values) {
  extra = { settings: values.settings, earlyStoppingSettings: values.earlyStoppingSettings };
  for (const input of form.querySelectorAll("[data-field]")) {
    const value = values[input.dataset.field] ?? "";
    if (input.tagName === "SELECT" && ![...input.options].some((option) => option.value === value)) {
      input.append(new Option(value, value));
    }
    if (document.activeElement !== input) input.value = value;
  }
  if (rows.contains(document.activeElement)) return; // who types in a row is not disturbed
  rows.replaceChildren();
  values.parameters.forEach(addRow);
}

function readForm() {
  const values = { ...extra };
  for (const input of form.querySelectorAll("[data-field]")) values[input.dataset.field] = input.value;
  values.parameters = [...rows.children].map((row) => {
    const listed = !row.querySelector('[data-for="list"]').hidden;
    const parameter = {};
    for (const input of row.querySelectorAll("[data-key]")) {
      const kind = input.closest("[data-for]")?.dataset.for;
      parameter[input.dataset.key] = kind && (kind === "list") !== listed ? "" : input.value;
    }
    return parameter;
  });
  return values;
}

/** Take a change of the form into the text. An answer that is on its way is of the text before it, and counts no more. */
function formChanged() {
  asked += 1;
  takeForm();
}

const takeForm = settled(250, async () => {
  try {
    const answer = await fetchJson("data/new/form", json({ text: text.value, form: readForm() }));
    text.value = answer.text;
    keepDraft();
    await check();
  } catch (error) {
    verdict.textContent = `The form cannot be used until the text can be read: ${error.message}`;
  }
});

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", (event) => {
  const row = event.target.closest(".parameter");
  if (row) fitRow(row);
  if (event.target.dataset.field === "algorithm") extra.settings = [];
  if (event.target.dataset.field === "earlyStopping") extra.earlyStoppingSettings = [];
  formChanged();
});
document.getElementById("add-parameter").addEventListener("click", () => {
  addRow().querySelector("input").focus();
});

// --- errors where they belong --------------------------------------------------------------------------------------------

function clearErrors() {
  document.getElementById("errors").replaceChildren();
  for (const shown of form.querySelectorAll(".field-error")) {
    if (shown.closest(".parameter")) shown.hidden = true;
    else shown.remove();
  }
  for (const input of form.querySelectorAll("[aria-invalid]")) {
    input.removeAttribute("aria-invalid");
    const hint = input.getAttribute("aria-describedby").split(" ").find((id) => id.startsWith("h-"));
    if (hint) input.setAttribute("aria-describedby", hint);
    else input.removeAttribute("aria-describedby");
  }
}

/** The field of the form that an error is about: the one with the longest path that leads to it. */
function fieldOf(path) {
  const row = /^spec\.parameters\[(\d+)\]/.exec(path);
  if (row) return rows.children[Number(row[1])] ?? null;
  const fields = [...form.querySelectorAll("[data-path]")].filter((input) => path === input.dataset.path || path.startsWith(`${input.dataset.path}.`));
  return fields.sort((a, b) => b.dataset.path.length - a.dataset.path.length)[0] ?? null;
}

function showAtField(error) {
  const field = fieldOf(error.path);
  if (!field) return;
  const words = `${error.cause}; ${error.remedy}`;
  let shown;
  let input = field;
  if (field.classList.contains("parameter")) {
    shown = field.querySelector(".field-error");
    const key = { parameterType: "type" }[error.path.split(".").pop()] ?? error.path.split(".").pop().replace(/\[.*/, "");
    input = field.querySelector(`[data-key="${CSS.escape(key)}"]`) ?? field.querySelector("input");
    shown.textContent = shown.hidden ? words : `${shown.textContent} ${words}`;
    shown.hidden = false;
  } else {
    shown = Object.assign(document.createElement("p"), { className: "field-error", textContent: words });
    field.closest(".field").append(shown);
  }
  shown.id ||= `error-${Math.random().toString(36).slice(2)}`;
  input.setAttribute("aria-invalid", "true");
  const hint = (input.getAttribute("aria-describedby") ?? "").split(" ").find((id) => id.startsWith("h-"));
  input.setAttribute("aria-describedby", [hint, shown.id].filter(Boolean).join(" "));
}

function goToLine(line) {
  const lines = text.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  text.focus();
  text.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
  text.scrollTop = (text.scrollHeight / lines.length) * Math.max(0, line - 6);
}

function listError(error) {
  const item = document.createElement("li");
  if (error.line) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: `line ${error.line}` });
    button.addEventListener("click", () => goToLine(error.line));
    item.append(button, " ");
  }
  item.append(Object.assign(document.createElement("code"), { textContent: error.path }), `: ${error.cause}; ${error.remedy}`);
  document.getElementById("errors").append(item);
}

// --- checking ----------------------------------------------------------------------------------------------------------

async function check() {
  const number = ++asked;
  let answer;
  try {
    answer = await fetchJson("data/new/check", json({ text: text.value }));
  } catch (error) {
    verdict.textContent = error.message;
    create.disabled = true;
    return;
  }
  if (number !== asked) return; // the text has changed meanwhile
  if (answer.form) showForm(answer.form);
  clearErrors();
  answer.errors.forEach(listError);
  answer.errors.forEach(showAtField);
  create.disabled = answer.errors.length > 0;
  verdict.dataset.ok = String(!answer.errors.length);
  const count = answer.errors.length;
  verdict.textContent = count ? `${count} thing${count > 1 ? "s" : ""} to fix` : "Ready to create.";
  document.getElementById("notices").replaceChildren(...answer.notices.map((notice) => Object.assign(document.createElement("li"), { textContent: notice })));
  const trial = document.getElementById("trial");
  trial.textContent = answer.trial?.yaml ?? (count ? "It is shown when nothing is left to fix." : "It cannot be shown before the algorithm was asked.");
  if (answer.form) {
    const names = [answer.form.metric, ...answer.form.additional.split(",")].map((name) => name.trim()).filter(Boolean);
    if (names.join() !== metricNames.join()) {
      metricNames = names;
      if (!touched) lines.value = names.map((name, i) => `epoch=1 ${name}=0.${52 - 21 * i}`).join("\n");
      readLines();
    }
    document.getElementById("command").textContent = `katib apply ${answer.form.name || "experiment"}.yaml`;
  }
}

text.addEventListener("input", keepDraft);
text.addEventListener("input", settled(300, check));

create.addEventListener("click", async () => {
  create.disabled = true;
  try {
    const answer = await fetchJson("api/v1/experiments", {
      method: "POST", headers: { "content-type": "application/yaml", accept: "application/json" }, body: text.value,
    });
    const { namespace, name } = answer.experiment.metadata;
    text.value = original;
    keepDraft();
    location.assign(new URL(`experiments/${namespace}/${name}`, document.baseURI));
  } catch (error) {
    verdict.dataset.ok = "false";
    verdict.textContent = error.message;
    create.disabled = false;
  }
});

// --- the tester of patterns ------------------------------------------------------------------------------------------------

let metricNames = [];
let touched = false; // whether the user pasted lines
const lines = document.getElementById("lines");
const filters = document.getElementById("filters");

async function readLines() {
  const shown = document.getElementById("readings");
  const patterns = filters.value.split("\n").filter((line) => line.trim());
  const answer = await fetchJson("data/new/metrics", json({ text: lines.value, names: metricNames, filters: patterns }))
    .catch((error) => ({ error: error.message }));
  if (answer.error) {
    shown.replaceChildren(Object.assign(document.createElement("p"), { className: "field-error", textContent: answer.error }));
    return;
  }
  const found = new Set(answer.readings.map((reading) => reading.name));
  const missing = metricNames.filter((name) => !found.has(name));
  const list = document.createElement("ul");
  for (const reading of answer.readings) {
    list.append(Object.assign(document.createElement("li"), { textContent: `line ${reading.line}: ${reading.name} = ${reading.value}` }));
  }
  const words = missing.length ? `Not found: ${missing.join(", ")}` : metricNames.length > 1 ? `All of ${metricNames.join(", ")} are found.` : `${metricNames[0]} is found.`;
  const sentence = Object.assign(document.createElement("p"), { textContent: metricNames.length ? words : "Name the metric first." });
  if (missing.length) sentence.className = "field-error";
  shown.replaceChildren(sentence, list);
}

lines.addEventListener("input", () => { touched = true; });
lines.addEventListener("input", settled(200, readLines));
filters.addEventListener("input", settled(200, readLines));

restoreDraft();
check();
