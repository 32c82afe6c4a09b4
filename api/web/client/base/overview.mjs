// Pages that watch the whole fleet: clusters, and for operators partitions and workers.
import { html } from "../vendor/lit.mjs";
import { all } from "./http.mjs";
import { Page } from "./page.mjs";
import { allowed } from "./session.mjs";

// Uploads make work without an event; workers that take it up say so.
const LOOK_SECONDS = 10;

export class Overview extends Page {
  static properties = {
    ...Page.properties,
    clusters: { state: true },
    partitions: { state: true },
    workers: { state: true },
  };

  constructor() {
    super();
    /** @type {any[] | null} Null until the first look has ended. */
    this.clusters = null;
    /** @type {any[]} */
    this.partitions = [];
    /** @type {any[]} */
    this.workers = [];
  }

  connectedCallback() {
    super.connectedCallback();
    this.watch(() => this.load(), { kinds: ["worker", "tag", "rebuild"], seconds: LOOK_SECONDS });
  }

  async load() {
    const forOperators = allowed("operator") ? ["partitions/", "workers/"] : [];
    const [clusters, partitions = [], workers = []] = await Promise.all(
      ["clusters/", ...forOperators].map((list) => all(`${list}?limit=1000`)),
    );
    [this.clusters, this.partitions, this.workers] = [clusters, partitions, workers];
  }

  /** Before the first look has ended.
   * @param {string} title */
  loading(title) {
    return html`<h1>${title}</h1>
      ${this.problem ? this.shownProblem() : html`<p class="quiet">Loading ...</p>`}`;
  }
}
