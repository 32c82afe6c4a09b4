// All tags: what they say, how many nodes carry them, how fresh they are; and their rebuilds.
import { html, ifDefined, nothing, repeat } from "../vendor/lit.mjs";
import { all, api, segment } from "../base/http.mjs";
import { FILTERS, KEYS } from "../base/choosing.mjs";
import { ago, count, percent, several, time } from "../base/format.mjs";
import { Page } from "../base/page.mjs";
import { allowed } from "../base/session.mjs";
import { styled } from "../base/styled.mjs";
import { highlighted } from "../base/xpath.mjs";
import "../parts/rebuild.mjs";
import { TONES } from "../parts/written.mjs";
import "../parts/rows.mjs";

const NARROW = matchMedia("(width < 60rem)");
const TITLES = /** @type {const} */ ([
  ["name", "Tag"],
  ["definition", "Definition"],
  ["nodes", "Nodes"],
  ["state", "State"],
  ["fresh", "Freshness"],
  ["changed", "Changed"],
]);

class Tags extends Page {
  static properties = {
    ...Page.properties,
    tags: { state: true },
    total: { state: true },
    sought: { state: true },
    filter: { state: true },
    sort: { state: true },
    isUp: { state: true },
    chosen: { state: true },
    rebuilds: { state: true },
  };

  constructor() {
    super();
    /** @type {any[] | null} */
    this.tags = null;
    this.total = 0;
    this.sought = "";
    this.filter = "all";
    this.sort = "name";
    this.isUp = true;
    /** @type {Set<string>} */
    this.chosen = new Set();
    /** @type {any[]} */
    this.rebuilds = [];
    this.look = () => {};
    this.redraw = () => this.requestUpdate();
  }

  connectedCallback() {
    super.connectedCallback();
    NARROW.addEventListener("change", this.redraw);
    this.endings.add(() => NARROW.removeEventListener("change", this.redraw));
    this.look = this.watch(() => this.load(), { kinds: ["tag", "rebuild", "worker"] });
  }

  async load() {
    const [tags, clusters, rebuilds] = await Promise.all([
      all("tags/?limit=1000"),
      all("clusters/?limit=1000"),
      api("rebuilds/?limit=20"),
    ]);
    this.tags = tags;
    this.total = clusters.reduce((sum, cluster) => sum + cluster.node_count, 0);
    const running = rebuilds.results.filter(
      (/** @type {any} */ found) => found.state === "running" && found.reason === "forced",
    );
    const known = new Set(this.rebuilds.map((found) => found.uuid));
    this.rebuilds = [...running.filter((/** @type {any} */ found) => !known.has(found.uuid)), ...this.rebuilds];
  }

  shown() {
    const sought = this.sought.trim().toLowerCase();
    const keep = FILTERS.find(([key]) => key === this.filter)?.[2] ?? (() => true);
    const key = KEYS[this.sort] ?? KEYS.name;
    const sign = this.isUp ? 1 : -1;
    return (this.tags ?? [])
      .filter(
        (tag) =>
          keep(tag) &&
          (!sought || `${tag.name}\n${tag.definition ?? ""}\n${tag.comment}`.toLowerCase().includes(sought)),
      )
      .map((tag) => ({ tag, by: /** @type {any} */ (key)(tag) }))
      .sort((a, b) => sign * (a.by < b.by ? -1 : a.by > b.by ? 1 : 0))
      .map(({ tag }) => tag);
  }

  async rebuild() {
    const names = [...this.chosen];
    const made = await this.trying(() => api("rebuilds/", { method: "POST", body: { tags: names } }));
    if (made === undefined) return;
    this.rebuilds = [made, ...this.rebuilds];
    this.chosen = new Set();
  }

  /** @param {string} uuid */
  over(uuid) {
    this.look();
    // What it ended with can be read for a while.
    setTimeout(() => (this.rebuilds = this.rebuilds.filter((found) => found.uuid !== uuid)), 4000);
  }

  /** @param {string} key */
  sortBy(key) {
    this.isUp = this.sort === key ? !this.isUp : true;
    this.sort = key;
  }

  /** @param {string} name @param {boolean} isChosen */
  choose(name, isChosen) {
    const chosen = new Set(this.chosen);
    chosen[isChosen ? "add" : "delete"](name);
    this.chosen = chosen;
  }

  render() {
    const shown = this.shown();
    return html` <div class="head">
        <h1>Tags</h1>
        <div class="line">
          ${allowed("operator") && this.chosen.size ? html`<button @click=${this.rebuild}>Rebuild ${count(this.chosen.size)}</button>` : nothing}
          ${allowed("operator") ? html`<a class="button primary" href="/new">New tag</a>` : nothing}
        </div>
      </div>
      ${this.shownProblem()}
      ${
        this.rebuilds.length
          ? html`<section class="card stack" aria-label="Rebuilds">
              ${repeat(
                this.rebuilds,
                (found) => found.uuid,
                (found) => html` <tm-rebuild .rebuild=${found} @over=${() => this.over(found.uuid)}></tm-rebuild>`,
              )}
            </section>`
          : nothing
      }
      <div class="line tools">
        <input
          class="grow"
          type="search"
          placeholder="Search names, definitions, comments"
          aria-label="Search tags"
          .value=${this.sought}
          @input=${(/** @type {any} */ event) => (this.sought = event.target.value)}
        />
        <div class="choices" role="group" aria-label="Show">
          ${FILTERS.map(
            ([key, title, keep]) =>
              html` <button aria-pressed=${this.filter === key} @click=${() => (this.filter = key)}>
                ${title} <span class="small">${count((this.tags ?? []).filter(keep).length)}</span>
              </button>`,
          )}
        </div>
      </div>
      <p class="out-of-sight" role="status">${several(shown.length, "tag")} shown</p>
      ${this.tags === null ? html`<p class="quiet">Loading ...</p>` : shown.length ? this.table(shown) : this.none()}`;
  }

  none() {
    if (this.tags?.length)
      return html`<div class="card empty">
        <p>No tag is like that.</p>
        <button
          @click=${() => {
            this.sought = "";
            this.filter = "all";
          }}
        >
          Show all tags
        </button>
      </div>`;
    return html`<div class="card empty">
      <h2>No tags yet</h2>
      <p>A tag is a name and an XPath expression over each machine's hardware inventory.</p>
      ${allowed("operator") ? html`<a class="button primary" href="/new">Write the first one</a>` : html`<p>An operator can write one.</p>`}
    </div>`;
  }

  /** @param {any[]} shown */
  table(shown) {
    // What is assigned by hand is not evaluated.
    const rebuilt = shown.filter((tag) => tag.kind === "automatic").map((tag) => tag.name);
    const areAll = rebuilt.length > 0 && rebuilt.every((name) => this.chosen.has(name));
    return html`<div class="list tags" role="table" aria-label="Tags" aria-rowcount=${shown.length + 1}>
      <div role="rowgroup">
        <div class="tag titles" role="row" aria-rowindex="1">
          ${
            allowed("operator")
              ? html`<span role="columnheader">
                  <input
                    type="checkbox"
                    aria-label="Select all shown"
                    .checked=${areAll}
                    @change=${(/** @type {any} */ event) => (this.chosen = new Set(event.target.checked ? rebuilt : []))}
                /></span>`
              : nothing
          }
          ${TITLES.map(
            ([key, title]) =>
              html`<span
                role="columnheader"
                class="at-${key}"
                aria-sort=${ifDefined(this.sort === key ? (this.isUp ? "ascending" : "descending") : undefined)}
              >
                <button class="plain small" @click=${() => this.sortBy(key)}>
                  ${title}<span aria-hidden="true">${this.sort === key ? (this.isUp ? "↑" : "↓") : ""}</span>
                </button></span
              >`,
          )}
        </div>
      </div>
      <tm-rows
        role="rowgroup"
        .count=${shown.length}
        .height=${NARROW.matches ? 6.5 : 3.5}
        .row=${(/** @type {number} */ index) => this.row(shown[index], index)}
      ></tm-rows>
    </div>`;
  }

  /** @param {any} tag @param {number} index */
  row(tag, index) {
    if (!tag) return nothing;
    const text = tag.pending_definition ?? tag.definition;
    const { partitions, pending, evaluated_at: at } = tag.freshness;
    return html`<div class="tag" role="row" aria-rowindex=${index + 2}>
      ${
        allowed("operator")
          ? html`<span role="cell"
              ><input
                type="checkbox"
                aria-label="Select ${tag.name}"
                .checked=${this.chosen.has(tag.name)}
                ?disabled=${tag.kind === "manual"}
                @change=${(/** @type {any} */ event) => this.choose(tag.name, event.target.checked)}
            /></span>`
          : nothing
      }
      <span role="cell" class="at-name cut"
        ><a href="/tags/${segment(tag.name)}" title=${tag.name}>${tag.name}</a>
        <span class="small quiet cut comment" title=${tag.comment}>${tag.comment}</span></span
      >
      <span role="cell" class="at-definition cut" title=${text ?? ""}
        >${text ? highlighted(text) : html`<span class="quiet">assigned by hand</span>`}</span
      >
      <span role="cell" class="at-nodes"
        ><span class="number"
          >${count(tag.node_count)} <span class="small quiet">${percent(tag.node_count, this.total)}</span></span
        >
        <span class="bar" aria-hidden="true"
          ><span ${styled({ width: `${this.total ? (100 * tag.node_count) / this.total : 0}%` })}></span></span
      ></span>
      <span role="cell" class="at-state"
        ><span class="badge ${TONES[tag.state]}" title=${tag.failure ?? tag.waiting_for[0]?.message ?? ""}
          >${tag.state}</span
        ></span
      >
      <span role="cell" class="at-fresh small"
        >${
          tag.kind === "manual"
            ? html`<span class="quiet">by hand</span>`
            : html`<span>${at ? html`true ${time(at)}` : "not evaluated yet"}</span>
                <span class="quiet">${count(partitions - pending)} of ${several(partitions, "partition")}</span>`
        }</span
      >
      <span role="cell" class="at-changed small quiet" title=${new Date(tag.updated_at).toLocaleString()}
        >${ago(tag.updated_at)}</span
      >
    </div>`;
  }
}

customElements.define("tm-tags", Tags);
