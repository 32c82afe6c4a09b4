// Nodes in a virtual list. Pages are read as they come into sight.
import { html, nothing } from "../vendor/lit.mjs";
import { api, segment } from "../base/http.mjs";
import { count } from "../base/format.mjs";
import { places } from "../base/places.mjs";
import { Page } from "../base/page.mjs";
import "./rows.mjs";

const PAGE = 1000;

/** `source` is the address of the first page, without a limit; `total` how many there are; `query` is
 * put behind the links to the nodes. With the bitmaps at `members` any page is read by itself, without
 * them in their order. Says "gone" when the list cannot be read any more. */
export class Nodes extends Page {
  static properties = {
    ...Page.properties,
    source: {},
    members: {},
    total: { type: Number },
    page: { type: Number },
    query: {},
    empty: {},
    nodes: { state: true },
  };

  constructor() {
    super();
    this.source = "";
    this.members = "";
    this.total = 0;
    this.page = PAGE;
    this.query = "";
    this.empty = "No nodes.";
    /** The pages that were read. @type {Map<number, any[]>} */
    this.nodes = new Map();
    /** Where each page begins. @type {import("../base/places.mjs").Places | null} */
    this.places = null;
    /** The next page, without bitmaps. @type {string | null} */
    this.next = null;
    this.first = 0;
    this.last = 0;
    this.isReading = false;
    this.seen = (/** @type {number} */ last, /** @type {number} */ first) => {
      [this.first, this.last] = [first, last];
      void this.read();
    };
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    // What is listed is not what is counted any more: it has changed since.
    const isOld = changed.has("total") && this.isWhole() && this.total !== this.known();
    if (!changed.has("source") && !changed.has("page") && !isOld) return;
    this.nodes = new Map();
    this.places = null;
    this.next = this.source ? this.paged(this.source) : null;
    void this.read();
  }

  /** How many are known of. */
  known() {
    return this.places?.count ?? [...this.nodes.values()].reduce((sum, rows) => sum + rows.length, 0);
  }

  /** Whether it is known how many there are. */
  isWhole() {
    return this.members ? this.places !== null : this.next === null;
  }

  /** @param {string} address */
  paged(address) {
    return `${address}${address.includes("?") ? "&" : "?"}limit=${this.page}`;
  }

  async read() {
    if (this.isReading) return;
    this.isReading = true;
    await this.trying(async () => {
      if (this.members && this.places === null && this.source) await this.place();
      for (let wanted = this.wanted(); wanted !== null; wanted = this.wanted()) {
        const { source } = this;
        const { results, next } = await api(wanted.address);
        if (source !== this.source) continue;
        this.nodes = new Map(this.nodes).set(wanted.number, results);
        this.next = next;
      }
    });
    this.isReading = false;
    // Another list was asked for meanwhile.
    if (this.members && this.places === null && this.problem === null && this.isConnected) void this.read();
  }

  async place() {
    const { members } = this;
    const found = await api(members);
    if (members !== this.members) return;
    this.places = places(found, this.page);
    // A list of none reads nothing more that would draw it.
    this.requestUpdate();
  }

  /** The page to read next, of those in sight. @returns {{number: number, address: string} | null} */
  wanted() {
    if (!this.isConnected) return null;
    if (this.members) {
      const begins = this.places?.begins ?? [];
      for (let number = Math.floor(this.first / this.page); number * this.page <= this.last; number += 1)
        if (begins[number] && !this.nodes.has(number))
          return { number, address: `${this.paged(this.source)}&begin=${begins[number]}` };
      return null;
    }
    const number = this.nodes.size;
    return this.next !== null && number * this.page <= this.last + 1 ? { number, address: this.next } : null;
  }

  render() {
    const total = Math.max(this.known(), this.isWhole() ? 0 : this.total);
    if (this.problem)
      return this.problem.status === 404 || this.problem.status === 410
        ? html`<p class="quiet empty">
            The list has ended. <button @click=${() => this.dispatchEvent(new Event("gone"))}>Read it again</button>
          </p>`
        : this.shownProblem();
    if (total === 0) return html`<p class="quiet empty">${this.isWhole() ? this.empty : "Loading ..."}</p>`;
    return html`<div class="list nodes">
      <tm-rows
        role="list"
        aria-label="${count(total)} nodes"
        tabindex="0"
        .count=${total}
        .height=${2.5}
        .seen=${this.seen}
        .row=${(/** @type {number} */ index) => this.row(this.at(index), index, total)}
      ></tm-rows>
    </div>`;
  }

  /** @param {number} index */
  at(index) {
    return this.nodes.get(Math.floor(index / this.page))?.[index % this.page];
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
              ><span class="quiet small cut kind">${node.cluster ?? this.places?.cluster(index) ?? node.kind}</span>`
          : html`<span class="quiet">...</span>`
      }${nothing}
    </div>`;
  }
}

customElements.define("tm-nodes", Nodes);
