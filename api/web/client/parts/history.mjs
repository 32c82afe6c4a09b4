// Who changed a tag and how, which nodes it gained and lost, and how its size went.
import { html, nothing } from "../vendor/lit.mjs";
import { api, segment } from "../base/http.mjs";
import { count, several, time } from "../base/format.mjs";
import { Page } from "../base/page.mjs";
import { highlighted } from "../base/xpath.mjs";
import "./chart.mjs";

const EVENTS = 50;
const CHANGES = 1000;
const LISTED = 10;
const MOMENT_MS = 10_000;
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
    sizes: { state: true },
  };

  constructor() {
    super();
    this.tag = "";
    this.total = 0;
    /** @type {any[] | null} */
    this.events = null;
    /** @type {any[]} */
    this.changes = [];
    /** From when on it had how many nodes. @type {any[]} */
    this.sizes = [];
  }

  /** @param {Map<string, unknown>} changed */
  updated(changed) {
    if (changed.has("tag") || changed.has("total")) void this.trying(() => this.load());
  }

  async load() {
    const name = segment(this.tag);
    const [events, changes, sizes] = await Promise.all([
      api(`tags/${name}/history?limit=${EVENTS}`),
      api(`tags/${name}/changes?limit=${CHANGES}`),
      api(`tags/${name}/sizes`),
    ]);
    this.events = events.results;
    this.changes = changes.results;
    this.sizes = sizes.results;
  }

  /** @returns {[number, number | null][]} */
  points() {
    return this.sizes.map(({ at, node_count: size }) => [Date.parse(at) / 1000, size]);
  }

  render() {
    if (this.events === null)
      return html`<h2>History</h2>
        ${this.shownProblem()}`;
    const moments = together(this.changes);
    const points = this.points();
    const hasGap = points.some(([, size]) => size === null);
    return html`<section class="stack" aria-labelledby="changed-nodes">
        <h2 id="changed-nodes">Nodes over time</h2>
        ${
          moments.length
            ? html`<div class="card stack">
                <tm-chart .points=${points}></tm-chart>
                ${hasGap ? html`<p class="quiet small">The gap is time of which no changes are kept.</p>` : nothing}
                <ol class="plainlist">
                  ${moments.slice(0, LISTED).map((moment) => this.moment(moment))}
                </ol>
                ${moments.length > LISTED ? html`<p class="quiet small">and ${count(moments.length - LISTED)} more, in tags/${this.tag}/changes of the API</p>` : nothing}
              </div>`
            : html`<p class="card quiet">No node came or went.</p>`
        }
      </section>
      <section class="stack" aria-labelledby="changed-how">
        <h2 id="changed-how">History</h2>
        ${
          this.events.length
            ? html`<ol class="card plainlist">
                ${this.events.map((event) => this.event(event))}
              </ol>`
            : html`<p class="card quiet">Nothing is recorded: events are kept for TAGMILL_AUDIT_DAYS.</p>`
        }
      </section>`;
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

  /** @param {Moment} moment */
  moment({ at, added, removed, places, actor }) {
    return html`<li>
      <span class="quiet small">${time(at)}</span>
      ${added ? html`<span class="plus">+${count(added)}</span>` : nothing}${removed ? html`<span class="minus">&minus;${count(removed)}</span>` : nothing}
      <span class="small grow cut"
        >in
        ${places.size > 2 ? several(places.size, "cluster") : [...places].join(" and ")}${actor ? `, by ${actor}` : ""}</span
      >
    </li>`;
  }
}

/** What came and went at once: each partition is evaluated by itself.
 * @typedef {{at: string, added: number, removed: number, places: Set<string>, actor: string}} Moment */

/** @param {any[]} changes The newest first. */
function together(changes) {
  /** @type {Moment[]} */
  const found = [];
  for (const { at, added_count: added, removed_count: removed, cluster, actor } of changes) {
    const last = found[found.length - 1];
    const place = cluster ?? "a cluster that is gone";
    if (last && last.actor === actor && Date.parse(last.at) - Date.parse(at) < MOMENT_MS) {
      last.added += added;
      last.removed += removed;
      last.places.add(place);
    } else found.push({ at, added, removed, places: new Set([place]), actor });
  }
  return found;
}

/** @param {any} value @returns {boolean} */
function isNothing(value) {
  if (Array.isArray(value)) return value.every(isNothing);
  return value === null || value === "" || (typeof value === "object" && Object.keys(value).length === 0);
}

customElements.define("tm-history", History);
