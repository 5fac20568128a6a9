// Trials of the table that are ticked, to be compared.

import { onKey, say } from "./core.js";

const [FEWEST, MOST] = [2, 5];

/** Keep what is ticked in the table `part` while it changes, and show below the page where to compare it. */
export function picking(part, namespace) {
  const bar = document.getElementById("picks");
  const link = bar.querySelector("a");
  const picked = new Set();

  function show() {
    for (const box of part.element.querySelectorAll("[data-pick]")) box.checked = picked.has(box.dataset.pick);
    bar.hidden = !picked.size;
    const wanted = FEWEST - picked.size;
    bar.querySelector("[role=status]").textContent = `${picked.size} chosen${wanted > 0 ? `, choose ${wanted} more to compare` : ""}`;
    link.hidden = wanted > 0;
    link.href = `compare?${new URLSearchParams([...picked].map((name) => ["trial", `${namespace}/${name}`]))}`;
  }

  function toggle(name) {
    if (picked.has(name)) picked.delete(name);
    else if (picked.size < MOST) picked.add(name);
    else say(`At most ${MOST} trials are compared; take one away first.`);
    show();
  }

  part.element.addEventListener("change", ({ target }) => { if (target.dataset.pick) toggle(target.dataset.pick); });
  part.element.addEventListener("shown", show);
  bar.querySelector("button").addEventListener("click", () => { picked.clear(); show(); });
  onKey("x", "choose the row to compare, or not", () => {
    const name = document.activeElement.closest?.("tr[data-trial]")?.dataset.trial;
    if (name) toggle(name);
  });
  onKey("c", "compare what is chosen", () => { if (link.hidden || bar.hidden) say("Choose two to five trials first: x on a row."); else link.click(); });
}
