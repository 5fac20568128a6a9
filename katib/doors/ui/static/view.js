// Choices of a reader that are part of the address of the page, so that its link shows the same to everybody.

/** The values of a choice in the address. */
export const remembered = (key) => new URLSearchParams(location.search).getAll(key);

/** Put the values of a choice into the address; none: the choice is the ordinary one. */
export function remember(key, values) {
  const address = new URL(location.href);
  address.searchParams.delete(key);
  for (const value of values) address.searchParams.append(key, value);
  history.replaceState(null, "", address);
}

const keyOf = (field) => field.dataset.view ?? `${field.form.dataset.for}.${field.name}`;
const isBox = ({ type }) => type === "checkbox";
const has = (field, value) => field.tagName !== "SELECT" || [...field.options].some((option) => option.value === value);

/** Have the fields with data-view, and those of the forms of figures, follow the address, and the address follow them. */
export function viewing(root) {
  const fields = [...root.querySelectorAll("[data-view], form[data-for] [name]")];
  const ofKey = (key) => fields.filter((field) => keyOf(field) === key);
  const valuesOf = (key) => ofKey(key).filter((field) => !isBox(field) || field.checked).map((field) => field.value);
  const ordinary = Object.fromEntries(fields.map((field) => [keyOf(field), valuesOf(keyOf(field)).join("\n")]));
  for (const key of Object.keys(ordinary)) {
    const values = remembered(key);
    if (!values.length) continue;
    for (const [i, field] of ofKey(key).entries()) {
      if (isBox(field)) field.checked = values.includes(field.value);
      else if (i in values && has(field, values[i])) field.value = values[i];
    }
  }
  const follow = ({ target }) => {
    if (!fields.includes(target)) return;
    const values = valuesOf(keyOf(target));
    remember(keyOf(target), values.join("\n") === ordinary[keyOf(target)] ? [] : values);
  };
  root.addEventListener("input", follow);
  root.addEventListener("change", follow);
}

/** Have the scales of figures follow the address, and the address follow them. */
export function lookingAt(elements) {
  for (const element of elements) {
    const key = `${element.dataset.key ?? element.dataset.figure}.look`;
    const words = remembered(key);
    const scales = words.filter((word) => word.includes("-")).map((word) => word.split("-"));
    if (words.length) element.look = { all: words.includes("all"), scales: Object.fromEntries(scales) };
    element.addEventListener("look", () => {
      const { all, scales = {} } = element.look;
      remember(key, [...(all ? ["all"] : []), ...Object.entries(scales).map((pair) => pair.join("-"))]);
    });
  }
}
