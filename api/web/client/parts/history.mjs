// Who changed a tag and how, which nodes it gained and lost, and how its size went.
import { html, nothing } from "../vendor/lit.mjs";
import { api, segment } from "../base/http.mjs";
import { count, several, time } from "../base/format.mjs";
import { Page } from "../base/page.mjs";
import { highlighted } from "../base/xpath.mjs";
import "./chart.mjs";

const EVENTS = 50;
const CHANGES = 1000;
const LISTED = 20;
/** @type {Record<string, string>} */
const SAID = {
  definition: "definition",
  pending_definition: "new definition",
  namespaces: "namespaces",
  pending_namespaces: "namespaces",
  comment: "comment",
  name: "name",
  kernel_opts: "kernel options",
  added: "assigned",
  removed: "no longer assigned",
};

class History extends Page {
  static properties = {
    ...Page.properties,
    tag: {},
    total: { type: Number },
    events: { state: true },
    changes: { state: true },
  };

  constructor() {
    super();
    this.tag = "";
    this.total = 0;
    /** @type {any[] | null} */
    this.events = null;
    /** @type {any[]} */
    this.changes = [];
  }

  /** @param {Map<string, unknown>} changed */
  updated(changed) {
    if (changed.has("tag") || changed.has("total")) void this.trying(() => this.load());
  }

  async load() {
    const name = segment(this.tag);
    const [events, changes] = await Promise.all([
      api(`tags/${name}/history?limit=${EVENTS}`),
      api(`tags/${name}/changes?limit=${CHANGES}`),
    ]);
    this.events = events.results;
    this.changes = changes.results;
  }

  /** The tag's size after each change, from what it has now backwards. @returns {[number, number][]} */
  sizes() {
    let size = this.total;
    /** @type {[number, number][]} */
    const found = [[Date.now() / 1000, size]];
    for (const change of this.changes) {
      found.push([Date.parse(change.at) / 1000, size]);
      size = Math.max(0, size - change.added_count + change.removed_count);
    }
    return found.reverse();
  }

  render() {
    if (this.events === null)
      return html`<h2>History</h2>
        ${this.shownProblem()}`;
    return html`<div class="editor">
      <section class="stack" aria-labelledby="changed-how">
        <h2 id="changed-how">History</h2>
        ${
          this.events.length
            ? html`<ol class="plainlist">
                ${this.events.map((event) => this.event(event))}
              </ol>`
            : html`<p class="quiet">Nothing is recorded: events are kept for TAGMILL_AUDIT_DAYS.</p>`
        }
      </section>
      <section class="stack" aria-labelledby="changed-nodes">
        <h2 id="changed-nodes">Nodes over time</h2>
        ${
          this.changes.length
            ? html`<tm-chart .points=${this.sizes()}></tm-chart>
                <ol class="plainlist">
                  ${this.changes.slice(0, LISTED).map((change) => this.change(change))}
                </ol>
                ${this.changes.length > LISTED ? html`<p class="quiet small">and ${count(this.changes.length - LISTED)} more, in tags/${this.tag}/changes of the API</p>` : nothing}`
            : html`<p class="quiet">No node came or went.</p>`
        }
      </section>
    </div>`;
  }

  /** @param {any} event */
  event(event) {
    // What was nothing and is nothing is no news, and a definition that is published waits no longer.
    const changes = Object.entries(event.changes).filter(
      ([name, value]) => !(event.action === "published" && name.startsWith("pending")) && !isNothing(value),
    );
    return html`<li>
      <span class="quiet small">${time(event.at)}</span
      ><span><strong>${event.actor || event.via}</strong> ${event.action}</span>
      ${changes.map(([name, value]) => html`<span class="small grow">${SAID[name] ?? name}: ${this.value(name, value)}</span>`)}
    </li>`;
  }

  /** @param {string} name @param {any} value @returns {unknown} */
  value(name, value) {
    const [before, after] = Array.isArray(value) ? value : [null, value];
    if (name.endsWith("definition"))
      return after ? highlighted(after) : before ? html`no longer ${highlighted(before)}` : "none";
    return typeof after === "object" && after !== null ? JSON.stringify(after) : String(after ?? "none");
  }

  /** @param {any} change */
  change(change) {
    return html`<li>
      <span class="quiet small">${time(change.at)}</span>
      ${change.added_count ? html`<span class="plus">+${count(change.added_count)}</span>` : nothing}${change.removed_count ? html`<span class="minus">&minus;${count(change.removed_count)}</span>` : nothing}
      <span class="small grow cut"
        >${several(change.added_count + change.removed_count, "node")} in
        ${change.cluster ?? "a cluster that is gone"}${change.actor ? `, by ${change.actor}` : ""}</span
      >
    </li>`;
  }
}

/** @param {any} value @returns {boolean} */
function isNothing(value) {
  if (Array.isArray(value)) return value.every(isNothing);
  return value === null || value === "" || (typeof value === "object" && Object.keys(value).length === 0);
}

customElements.define("tm-history", History);
