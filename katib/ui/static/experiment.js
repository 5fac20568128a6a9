// The page of one experiment.

import { atMostEvery, follow, showLive } from "./core.js";
import { drawFigure, whenColoursChange } from "./figures.js";

const root = document.getElementById("experiment");
const data = `data/experiments/${root.dataset.namespace}/${root.dataset.name}`;

function drawAll() {
  for (const element of root.querySelectorAll("[data-figure]")) {
    drawFigure(element, `${data}/figures/${element.dataset.figure}`);
  }
}

const drawSoon = atMostEvery(1000, drawAll);

whenColoursChange(drawAll);
follow(`${data}/live`, {
  change: ({ experiment }) => {
    showLive(experiment);
    drawSoon();
  },
  problem: (problem, source) => {
    source.close();
    document.getElementById("connection").textContent = problem.detail;
  },
});
