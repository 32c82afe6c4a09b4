// A document as a tree: collapsible, searched, with the hits of an explanation marked. Arrows move in it.
import { html, nothing } from "../vendor/lit.mjs";
import { count, several } from "../base/format.mjs";
import { definition, items } from "../base/hardware.mjs";
import { Part } from "../base/page.mjs";
import { allowed } from "../base/session.mjs";
import { styled } from "../base/styled.mjs";
import "./rows.mjs";

// So deep the tree is open at first: the machine, its board, and what is on it.
const OPEN_DEPTH = 3;

class Tree extends Part {
  static properties = {
    document: { attribute: false },
    isLoading: { attribute: false },
    marks: { attribute: false },
    sought: { state: true },
    open: { state: true },
    current: { state: true },
  };

  constructor() {
    super();
    /** @type {Document | null} */
    this.document = null;
    this.isLoading = false;
    /** @type {Set<Element>} */
    this.marks = new Set();
    this.sought = "";
    /** @type {import("../base/hardware.mjs").Item[]} */
    this.items = [];
    /** @type {Set<number>} */
    this.open = new Set();
    this.current = 0;
    /** @type {number[]} */
    this.found = [];
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    if (changed.has("document")) {
      this.items = this.document ? items(this.document) : [];
      this.open = new Set(this.items.filter((item) => item.depth < OPEN_DEPTH).map((item) => item.at));
      this.current = 0;
    }
    if (changed.has("document") || changed.has("sought")) {
      const sought = this.sought.trim().toLowerCase();
      this.found = sought ? this.items.filter((item) => text(item).includes(sought)).map((item) => item.at) : [];
      this.show(this.found);
    }
    if (changed.has("document") || changed.has("marks"))
      this.show(this.items.filter((item) => this.marks.has(item.element)).map((item) => item.at));
  }

  /** Opens what is around these, and goes to the first. @param {number[]} places */
  show(places) {
    const [first] = places;
    if (first === undefined) return;
    const open = new Set(this.open);
    for (const place of places)
      for (let at = this.items[place]?.parent ?? -1; at >= 0; at = this.items[at]?.parent ?? -1) open.add(at);
    this.open = open;
    this.go(first, "center");
  }

  /** @param {number} place @param {"auto" | "center"} [align] */
  go(place, align = "auto") {
    this.current = place;
    void this.updateComplete.then(() => {
      const rows = /** @type {any} */ (this.querySelector("tm-rows"));
      rows?.virtual.scrollToIndex(
        this.shown().findIndex((item) => item.at === place),
        { align },
      );
    });
  }

  /** The items that are not inside of a closed one. */
  shown() {
    const found = [];
    for (let at = 0; at < this.items.length;) {
      const item = /** @type {import("../base/hardware.mjs").Item} */ (this.items[at]);
      found.push(item);
      at = this.open.has(at) ? at + 1 : item.end;
    }
    return found;
  }

  /** @param {number} at @param {boolean} isOpen */
  toggle(at, isOpen) {
    const open = new Set(this.open);
    open[isOpen ? "add" : "delete"](at);
    this.open = open;
  }

  /** @param {number} by */
  next(by) {
    const place = this.found.indexOf(this.current);
    this.go(this.found[(place + by + this.found.length) % this.found.length] ?? 0);
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const shown = this.shown();
    const place = shown.findIndex((item) => item.at === this.current);
    const item = shown[place];
    if (item === undefined) return;
    const hasChildren = item.end > item.at + 1;
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowDown: () => this.go((shown[place + 1] ?? item).at),
      ArrowUp: () => this.go((shown[place - 1] ?? item).at),
      Home: () => this.go(0),
      End: () => this.go((shown[shown.length - 1] ?? item).at),
      ArrowRight: () =>
        hasChildren && !this.open.has(item.at)
          ? this.toggle(item.at, true)
          : this.go(hasChildren ? item.at + 1 : item.at),
      ArrowLeft: () =>
        hasChildren && this.open.has(item.at) ? this.toggle(item.at, false) : this.go(Math.max(0, item.parent)),
      Enter: () => hasChildren && this.toggle(item.at, !this.open.has(item.at)),
    };
    const act = keys[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  }

  render() {
    if (this.isLoading) return html`<p class="quiet empty">Loading ...</p>`;
    if (this.document === null)
      return html`<p class="quiet empty">No document: nothing has been uploaded for this node.</p>`;
    const shown = this.shown();
    const item = this.items[this.current];
    return html` <div class="line tools">
        <input
          type="search"
          class="grow"
          aria-label="Search the document"
          placeholder="Search names, attributes and texts"
          .value=${this.sought}
          @input=${(/** @type {any} */ event) => (this.sought = event.target.value)}
          @keydown=${(/** @type {KeyboardEvent} */ event) => event.key === "Enter" && this.found.length && this.next(event.shiftKey ? -1 : 1)}
        />
        ${
          this.sought
            ? html`<span class="small quiet" role="status">${several(this.found.length, "element")}</span>
                <button aria-label="Previous" ?disabled=${!this.found.length} @click=${() => this.next(-1)}>↑</button
                ><button aria-label="Next" ?disabled=${!this.found.length} @click=${() => this.next(1)}>↓</button>`
            : nothing
        }
        ${allowed("operator") && item ? html`<a class="button" href="/new?${new URLSearchParams({ definition: definition(item.element) })}" title=${definition(item.element)}>Make a tag of this</a>` : nothing}
      </div>
      <div class="list tree">
        <tm-rows
          role="tree"
          aria-label="Document"
          tabindex="0"
          aria-activedescendant="item-${this.current}"
          @keydown=${this.pressed}
          .count=${shown.length}
          .height=${1.875}
          .row=${(/** @type {number} */ index) => this.row(shown[index])}
        ></tm-rows>
      </div>
      <p class="small quiet">${count(this.items.length)} elements</p>`;
  }

  /** @param {import("../base/hardware.mjs").Item | undefined} item */
  row(item) {
    if (item === undefined) return nothing;
    const { at, depth, element, end } = item;
    const isOpen = this.open.has(at);
    const hasChildren = end > at + 1;
    const isHit = this.marks.has(element);
    return html`<div
      id="item-${at}"
      class="item ${at === this.current ? "current" : ""} ${isHit ? "hit" : ""} ${this.found.includes(at) ? "sought" : ""}"
      role="treeitem"
      aria-level=${depth + 1}
      aria-selected=${at === this.current}
      aria-expanded=${hasChildren ? isOpen : nothing}
      @click=${() => (this.current = at)}
      @dblclick=${() => this.toggle(at, !isOpen)}
      ${styled({ "--depth": String(depth) })}
    >
      <span class="twist" aria-hidden="true" @click=${() => hasChildren && this.toggle(at, !isOpen)}
        >${hasChildren ? (isOpen ? "▾" : "▸") : ""}</span
      >
      <span class="cut"
        ><span class="xp xp-name">${element.tagName}</span>${[...element.attributes]
          .filter((found) => !found.name.startsWith("xmlns") && found.name !== "handle")
          .slice(0, 4)
          .map(
            (found) =>
              html` <span class="xp"
                ><span class="xp-attribute">${found.name}</span>=<span class="xp-string">${found.value}</span></span
              >`,
          )} <span class="said ${element.children.length ? "quiet" : ""}">${item.said}</span></span
      >${isHit ? html`<span class="badge accent">hit</span>` : nothing}
    </div>`;
  }
}

/** What the search looks at. @param {import("../base/hardware.mjs").Item} item */
function text({ element }) {
  const own = element.children.length ? "" : element.textContent;
  return `${element.tagName} ${[...element.attributes].map((found) => `${found.name}=${found.value}`).join(" ")} ${own}`.toLowerCase();
}

customElements.define("tm-tree", Tree);
