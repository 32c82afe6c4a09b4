// All machines: sought by the beginning of a name, and by a tag.
import { html, nothing } from "../vendor/lit.mjs";
import { all, api, segment } from "../base/http.mjs";
import { count } from "../base/format.mjs";
import { Page } from "../base/page.mjs";
import { allowed } from "../base/session.mjs";
import "../parts/nodes.mjs";

const TYPING_MS = 150;

class NodesPage extends Page {
  static properties = {
    ...Page.properties,
    sought: { state: true },
    cluster: { state: true },
    tag: { state: true },
    clusters: { state: true },
    tags: { state: true },
  };

  constructor() {
    super();
    this.sought = "";
    this.cluster = "";
    this.tag = "";
    /** @type {any[]} */
    this.clusters = [];
    /** @type {any[]} */
    this.tags = [];
    this.timer = 0;
  }

  connectedCallback() {
    super.connectedCallback();
    void this.trying(async () => {
      this.clusters = await all("clusters/?limit=1000");
      if (allowed("viewer")) this.tags = (await api("tags/?limit=1000")).results;
    });
  }

  /** The addresses of the list and of its places. */
  addresses() {
    const asked = new URLSearchParams();
    if (this.sought) asked.set("q", this.sought);
    if (this.cluster) asked.set("cluster", this.cluster);
    const query = asked.size ? `?${asked}` : "";
    const tag = `tags/${segment(this.tag)}`;
    return this.tag ? [`${tag}/nodes${query}`, `${tag}/members${query}`] : [`nodes/${query}`, `places${query}`];
  }

  /** @param {string} text */
  typed(text) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => (this.sought = text.trim()), TYPING_MS);
  }

  tagged() {
    return html`<select aria-label="Tag" @change=${(/** @type {any} */ event) => (this.tag = event.target.value)}>
      <option value="">Any tag</option>
      ${this.tags.map((one) => html`<option>${one.name}</option>`)}
    </select>`;
  }

  render() {
    const [source, members] = this.addresses();
    return html`<div class="head">
        <h1>Nodes</h1>
        <span class="quiet">${count(this.clusters.reduce((sum, one) => sum + one.node_count, 0))} in the fleet</span>
      </div>
      ${this.shownProblem()}
      <div class="line tools">
        <input
          class="grow"
          type="search"
          aria-label="Search nodes"
          placeholder="Beginning of a hostname or system_id"
          @input=${(/** @type {any} */ event) => this.typed(event.target.value)}
        />
        <select aria-label="Cluster" @change=${(/** @type {any} */ event) => (this.cluster = event.target.value)}>
          <option value="">All clusters</option>
          ${this.clusters.map((one) => html`<option>${one.name}</option>`)}
        </select>
        ${allowed("viewer") ? this.tagged() : nothing}
      </div>
      <tm-nodes
        class="tall"
        source=${source}
        members=${members}
        query=${this.tag ? `?tag=${this.tag}` : ""}
        empty="No node is like that. Nodes come by uploads: PUT nodes/{system_id}/document, or nodes/import."
      ></tm-nodes>`;
  }
}

customElements.define("tm-nodes-page", NodesPage);
