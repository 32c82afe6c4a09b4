// The fleet in the last hour, as small charts with what each is at now.
import { html, nothing } from "../vendor/lit.mjs";
import { api } from "../base/http.mjs";
import { count } from "../base/format.mjs";
import { Page } from "../base/page.mjs";
import "./chart.mjs";

const LOOK_SECONDS = 20;
/** A longer time without a sample is no time that can be counted by. */
const MAX_GAP_SECONDS = 120;
/** Each with what it is of a sample, and whether that is counted a second.
 * @type {[string, string, boolean][]} */
const CHARTS = [
  ["stale", "Evaluations that wait", false],
  ["changes", "Changes a second", true],
  ["verdicts", "Verdicts of workers a second", true],
  ["workers", "Workers", false],
];

class Hour extends Page {
  static properties = { ...Page.properties, samples: { state: true } };

  constructor() {
    super();
    /** @type {any[] | null} */
    this.samples = null;
  }

  connectedCallback() {
    super.connectedCallback();
    this.watch(async () => (this.samples = (await api("fleet/samples")).results), { seconds: LOOK_SECONDS });
  }

  /** @param {string} key @param {boolean} isRate @returns {[number, number][]} */
  points(key, isRate) {
    /** @type {[number, number][]} */
    const found = [];
    let before = 0;
    for (const sample of this.samples ?? []) {
      const at = Date.parse(sample.at) / 1000;
      const seconds = at - before;
      before = at;
      if (!isRate) found.push([at, sample[key]]);
      else if (seconds <= MAX_GAP_SECONDS) found.push([at, sample[key] / seconds]);
    }
    return found;
  }

  render() {
    if (this.samples === null) return this.problem ? this.shownProblem() : html`<p class="quiet">Loading ...</p>`;
    if (this.samples.length < 2)
      return html`<p class="card empty">Charts begin with the second sample: one is taken each 20 seconds.</p>`;
    return html`${this.shownProblem()}
      <div class="cards charts">
        ${CHARTS.map(([key, title, isRate]) => {
          const points = this.points(key, isRate);
          const last = points[points.length - 1];
          return html`<figure class="card stack">
            <figcaption class="line spread">
              <span>${title}</span><strong class="number">${last ? count(last[1]) : "-"}</strong>
            </figcaption>
            ${points.length ? html`<tm-chart ?smooth=${isRate} .points=${points}></tm-chart>` : nothing}
          </figure>`;
        })}
      </div>`;
  }
}

customElements.define("tm-hour", Hour);
