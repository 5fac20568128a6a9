// Links to Katib's own page, such as `#/experiment/NAMESPACE/NAME`, lead to ours.

import { fetchJson } from "./core.js";

const NAME = "([a-z0-9][a-z0-9.-]*)";
const EXPERIMENT = new RegExp(`^#/experiment/${NAME}/${NAME}/?$`);
const TRIAL = new RegExp(`^#/experiment/${NAME}/trial/${NAME}/?$`);

/** The namespace of an experiment whose link does not say it: that of the dashboard around us, else the only one. */
async function namespaceOf(experiment) {
  const chosen = new URLSearchParams(location.search).get("ns");
  if (chosen) return chosen;
  const { items } = await fetchJson("api/v1/experiments");
  const found = items.filter((item) => item.metadata.name === experiment);
  return found.length === 1 ? found[0].metadata.namespace : null;
}

/** The page of ours that a link to Katib's means; null where it means this one. */
async function pageOf(hash) {
  const trial = hash.match(TRIAL);
  if (trial) {
    const namespace = await namespaceOf(trial[1]);
    return namespace && `trials/${encodeURIComponent(namespace)}/${trial[2]}`;
  }
  const experiment = hash.match(EXPERIMENT);
  if (experiment) return `experiments/${experiment[1]}/${experiment[2]}`;
  return /^#\/new\/?$/.test(hash) ? "new" : null;
}

async function forward() {
  const page = await pageOf(location.hash).catch(() => null);
  if (page) location.replace(new URL(page, document.baseURI));
}

addEventListener("hashchange", forward);
forward();
