// A number over time as a line, in the colours of the page.
import uPlot from "../vendor/uplot.mjs";
import { count } from "../base/format.mjs";

const DAY_SECONDS = 86_400;
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const exact = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** How moments are written on an axis of so many seconds. @param {number} span */
const written = (span) => (span < 600 ? exact : span < 2 * DAY_SECONDS ? clock : day);

/** `points` are [seconds since 1970, number], ascending; null where the line has a gap. What it shows is said in words beside it. */
export class Chart extends HTMLElement {
  constructor() {
    super();
    /** @type {any} */
    this.plot = null;
    /** @type {[number, number | null][]} */
    this.shown = [];
    this.seen = new ResizeObserver(() => this.plot?.setSize(this.size()));
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

  /** @param {[number, number | null][]} points */
  set points(points) {
    this.shown = points;
    this.draw();
  }

  size() {
    return { width: this.clientWidth || 300, height: this.clientHeight || 144 };
  }

  draw() {
    if (!this.isConnected) return;
    this.plot?.destroy();
    const colour = (/** @type {string} */ name) => getComputedStyle(this).getPropertyValue(name).trim();
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const font = `${0.75 * rem}px ${colour("--font")}`;
    const grid = { stroke: colour("--line"), width: 1 };
    const axis = { stroke: colour("--ink-2"), font, gap: 0.25 * rem, grid, ticks: { show: false } };
    const span = (this.shown.at(-1)?.[0] ?? 0) - (this.shown[0]?.[0] ?? 0);
    const text = written(span);
    /** @type {any} */
    const options = {
      ...this.size(),
      padding: [0.5 * rem, 1.75 * rem, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      axes: [
        {
          ...axis,
          size: 1.5 * rem,
          space: 4 * rem,
          values: (/** @type {any} */ _plot, /** @type {number[]} */ ticks) =>
            ticks.map((tick) => text.format(1000 * tick)),
        },
        {
          ...axis,
          size: 3.5 * rem,
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
        {
          stroke: colour("--bar"),
          fill: colour("--bar-soft"),
          width: 2,
          points: { show: false },
          paths: this.hasAttribute("smooth") ? uPlot.paths.linear?.() : uPlot.paths.stepped?.({ align: 1 }),
        },
      ],
    };
    this.plot = new uPlot(options, [this.shown.map(([at]) => at), this.shown.map(([, number]) => number)], this);
  }
}

customElements.define("tm-chart", Chart);
