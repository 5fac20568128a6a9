// The language of all search fields, as `search.py` has it, for a page without a server; and the completion of its words.

const WORD = /(?:[^\s"]|"[^"]*"?)+/g;
const COMPARISON = /^([^<>=!:]+)(<=|>=|!=|=|<|>|:)(.+)$/s;
const ORDERS = {
  "<": (one, other) => one < other,
  "<=": (one, other) => one <= other,
  ">": (one, other) => one > other,
  ">=": (one, other) => one >= other,
};

const isAbsent = (cell) => cell === null || cell === "";
const numberOf = (text, kind) => (kind === "time" && Number.isNaN(Number(text)) ? Date.parse(text) / 1000 : Number(text));

/** The comparison of a column with a value as a test of a cell; null where they do not fit. */
function comparison({ kind }, sign, value) {
  const equal = (holds) => (sign === "=" ? holds : sign === "!=" ? (cell) => !isAbsent(cell) && !holds(cell) : null);
  const choices = value.toLowerCase().split("|");
  if (value === "none") return sign === "=" ? isAbsent : sign === "!=" ? (cell) => !isAbsent(cell) : null;
  if (kind === "text") return equal((cell) => choices.some((part) => String(cell).toLowerCase().includes(part)));
  if (kind === "choice" && !(sign in ORDERS)) return equal((cell) => choices.includes(String(cell).toLowerCase()));
  const read = (cell) => (kind === "time" ? Date.parse(cell) / 1000 : Number(cell));
  const [low, high] = value.split("..");
  if (high !== undefined) {
    const [from, to] = [low === "" ? -Infinity : Number(low), high === "" ? Infinity : Number(high)];
    return sign !== "=" || [from, to].some(Number.isNaN) ? null : (cell) => !isAbsent(cell) && read(cell) >= from && read(cell) <= to;
  }
  const numbers = value.split("|").map((part) => numberOf(part, kind));
  if (numbers.some(Number.isNaN)) return null;
  if (sign in ORDERS) return (cell) => !isAbsent(cell) && ORDERS[sign](read(cell), numbers[0]);
  return equal((cell) => numbers.includes(read(cell)));
}

/** The tests of the rows of some columns that a search makes; a row is its place in the columns' values. */
export function testsOf(text, columns) {
  return (text.match(WORD) ?? []).map((word) => {
    const plain = word.replaceAll('"', "");
    const [, name, sign, value] = word.startsWith('"') ? [] : COMPARISON.exec(plain) ?? [];
    const column = columns.find(({ key, title }) => name && [key, title].some((one) => one.toLowerCase() === name.toLowerCase()));
    const test = column && comparison(column, sign === ":" ? "=" : sign, value);
    if (test) return (row) => test(column.values[row]);
    const part = plain.toLowerCase();
    const texts = columns.filter(({ kind }) => kind === "text" || kind === "choice");
    return (row) => texts.some(({ values }) => String(values[row] ?? "").toLowerCase().includes(part));
  });
}

/** Offer the ends of the last word of a search field: `terms` are the comparisons that there are, or their beginnings. */
export function completing(input, terms) {
  const list = Object.assign(document.createElement("datalist"), { id: `${input.form.id}-terms` });
  input.after(list);
  input.setAttribute("list", list.id);
  const offer = () => {
    const start = input.value.search(/[^\s"]*$/);
    const begun = input.value.slice(start).toLowerCase();
    const found = begun ? terms.filter((term) => term.toLowerCase().startsWith(begun) && term.length > begun.length) : [];
    list.replaceChildren(...found.slice(0, 12).map((term) => new Option("", input.value.slice(0, start) + term)));
  };
  input.addEventListener("input", offer);
}
