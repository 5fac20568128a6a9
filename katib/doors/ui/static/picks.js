// Rows of a table that are ticked, to be compared.

import { onKey, say } from "./core.js";

const [FEWEST, MOST] = [2, 40];

/** Keep what is ticked in a table while it changes, and show below the page where to compare it; `kind` is of its rows. */
export function picking(table, kind) {
  const bar = document.getElementById("picks");
  const link = bar.querySelector("a");
  const picked = new Set();
  const boxes = () => [...table.querySelectorAll("[data-pick]")];

  function show() {
    for (const box of boxes()) box.checked = picked.has(box.dataset.pick);
    const all = table.querySelector("[data-pick-all]");
    if (all) all.checked = boxes().every(({ checked }) => checked);
    bar.hidden = !picked.size;
    const wanted = FEWEST - picked.size;
    bar.querySelector("[role=status]").textContent = `${picked.size} chosen${wanted > 0 ? `, choose ${wanted} more to compare` : ""}`;
    link.hidden = wanted > 0;
    link.href = `compare?${new URLSearchParams([...picked].map((name) => [kind, name]))}`;
  }

  function pick(name, on = !picked.has(name)) {
    if (!on) picked.delete(name);
    else if (picked.size < MOST || picked.has(name)) picked.add(name);
    else say(`At most ${MOST} ${kind}s are compared; take one away first.`);
  }

  table.addEventListener("change", ({ target }) => {
    if (target.dataset.pick) pick(target.dataset.pick, target.checked);
    else if ("pickAll" in target.dataset) for (const box of boxes()) pick(box.dataset.pick, target.checked);
    else return;
    show();
  });
  table.addEventListener("shown", show);
  bar.querySelector("button").addEventListener("click", () => { picked.clear(); show(); });
  onKey("x", "choose the row to compare, or not", () => {
    const name = document.activeElement.closest?.("tr")?.querySelector("[data-pick]")?.dataset.pick;
    if (name) { pick(name); show(); }
  });
  onKey("c", "compare what is chosen", () => { if (link.hidden || bar.hidden) say(`Choose two ${kind}s first: x on a row.`); else link.click(); });
  return show;
}
