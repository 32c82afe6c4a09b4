// A number over time as a line, in the colours of the page.
import uPlot from "../vendor/uplot.mjs";
import { count } from "../base/format.mjs";

const HEIGHT = 160;

/** `points` are [seconds since 1970, number], ascending. What it shows is said in words beside it. */
export class Chart extends HTMLElement {
  constructor() {
    super();
    /** @type {any} */
    this.plot = null;
    /** @type {[number, number][]} */
    this.shown = [];
    this.seen = new ResizeObserver(() => this.plot?.setSize({ width: this.clientWidth || 300, height: HEIGHT }));
    this.redraw = () => this.draw();
  }

  connectedCallback() {
    this.setAttribute("aria-hidden", "true");
    this.seen.observe(this);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", this.redraw);
    this.draw();
  }

  disconnectedCallback() {
    this.seen.disconnect();
    matchMedia("(prefers-color-scheme: dark)").removeEventListener("change", this.redraw);
    this.plot?.destroy();
    this.plot = null;
  }

  /** @param {[number, number][]} points */
  set points(points) {
    this.shown = points;
    this.draw();
  }

  draw() {
    if (!this.isConnected) return;
    this.plot?.destroy();
    const colour = (/** @type {string} */ name) => getComputedStyle(this).getPropertyValue(name).trim();
    const axis = { stroke: colour("--ink-2"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    /** @type {any} */
    const options = {
      width: this.clientWidth || 300,
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      axes: [
        axis,
        {
          ...axis,
          size: 64,
          values: (/** @type {any} */ _plot, /** @type {number[]} */ ticks) => ticks.map((tick) => count(tick)),
        },
      ],
      scales: {
        y: {
          range: (/** @type {any} */ _plot, /** @type {number} */ _low, /** @type {number} */ high) => [
            0,
            Math.max(1, high * 1.1),
          ],
        },
      },
      series: [
        {},
        { stroke: colour("--bar"), width: 2, points: { show: false }, paths: uPlot.paths.stepped?.({ align: 1 }) },
      ],
    };
    this.plot = new uPlot(options, [this.shown.map(([at]) => at), this.shown.map(([, number]) => number)], this);
  }
}

customElements.define("tm-chart", Chart);
