// Nodes in a virtual list. Pages are read as they come into sight, in their order.
import { html, nothing } from "../vendor/lit.mjs";
import { api, segment } from "../base/http.mjs";
import { count } from "../base/format.mjs";
import { Page } from "../base/page.mjs";
import "./rows.mjs";

const PAGE = 1000;

/** `source` is the address of the first page, without a limit; `total` how many there are; `query` is
 * put behind the links to the nodes. Says "gone" when the list cannot be read any more. */
export class Nodes extends Page {
  static properties = {
    ...Page.properties,
    source: {},
    total: { type: Number },
    query: {},
    empty: {},
    nodes: { state: true },
  };

  constructor() {
    super();
    this.source = "";
    this.total = 0;
    this.query = "";
    this.empty = "No nodes.";
    /** @type {any[]} */
    this.nodes = [];
    /** @type {string | null} */
    this.next = null;
    this.wanted = 0;
    this.isReading = false;
    this.seen = (/** @type {number} */ last) => {
      this.wanted = Math.max(this.wanted, last + 1);
      void this.read();
    };
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    // What is listed is not what is counted any more: it has changed since.
    const isOld = changed.has("total") && this.next === null && this.total !== this.nodes.length;
    if (!changed.has("source") && !isOld) return;
    this.nodes = [];
    this.wanted = 0;
    const mark = this.source.includes("?") ? "&" : "?";
    this.next = this.source ? `${this.source}${mark}limit=${PAGE}` : null;
    void this.read();
  }

  async read() {
    if (this.isReading) return;
    this.isReading = true;
    while (this.isConnected && this.next !== null && this.nodes.length <= this.wanted) {
      const { source, next } = this;
      const page = await this.trying(() => api(/** @type {string} */ (next)));
      if (source !== this.source) continue;
      if (page === undefined) break;
      this.nodes = [...this.nodes, ...page.results];
      this.next = page.next;
    }
    this.isReading = false;
  }

  render() {
    const total = Math.max(this.nodes.length, this.next === null ? 0 : this.total);
    if (this.problem)
      return this.problem.status === 404 || this.problem.status === 410
        ? html`<p class="quiet empty">
            The list has ended. <button @click=${() => this.dispatchEvent(new Event("gone"))}>Read it again</button>
          </p>`
        : this.shownProblem();
    if (total === 0) return html`<p class="quiet empty">${this.next === null ? this.empty : "Loading ..."}</p>`;
    return html`<div class="list nodes">
      <tm-rows
        role="list"
        aria-label="${count(total)} nodes"
        tabindex="0"
        .count=${total}
        .height=${2.5}
        .seen=${this.seen}
        .row=${(/** @type {number} */ index) => this.row(this.nodes[index], index, total)}
      ></tm-rows>
    </div>`;
  }

  /** @param {any} node @param {number} index @param {number} total */
  row(node, index, total) {
    return html`<div class="node-row" role="listitem" aria-posinset=${index + 1} aria-setsize=${total}>
      ${
        node
          ? html` <a class="cut" href="/nodes/${segment(node.system_id)}${this.query}"
                >${node.hostname || node.system_id}</a
              >
              <span class="quiet small cut">${node.system_id}</span
              ><span class="quiet small cut kind">${node.cluster ?? node.kind}</span>`
          : html`<span class="quiet">...</span>`
      }${nothing}
    </div>`;
  }
}

customElements.define("tm-nodes", Nodes);
