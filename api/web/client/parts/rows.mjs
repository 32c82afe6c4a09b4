// A list of which only the rows in sight are drawn: 100,000 scroll as smoothly as ten.
import { html, repeat } from "../vendor/lit.mjs";
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "../vendor/virtual.mjs";
import { Part } from "../base/page.mjs";
import { styled } from "../base/styled.mjs";

const OVERSCAN = 8;

/** `count` rows of `height` rem; `row(index)` draws one. `seen(last, first)` hears which rows are in sight. */
export class Rows extends Part {
  static properties = {
    count: { type: Number },
    height: { type: Number },
    row: { attribute: false },
    seen: { attribute: false },
  };

  constructor() {
    super();
    this.count = 0;
    this.height = 3;
    /** @type {(index: number) => unknown} */
    this.row = () => "";
    /** @type {(last: number, first: number) => void} */
    this.seen = () => {};
    this.rem = 16;
    /** @type {any} */
    this.virtual = null;
    /** @type {(() => void) | undefined} */
    this.ended = undefined;
    this.onResize = () => {
      this.rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
      this.virtual?.measure();
      this.requestUpdate();
    };
  }

  connectedCallback() {
    super.connectedCallback();
    this.classList.add("rows");
    this.rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    this.virtual = new Virtualizer(this.options());
    this.ended = this.virtual._didMount();
    addEventListener("resize", this.onResize);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    removeEventListener("resize", this.onResize);
    this.ended?.();
  }

  options() {
    return {
      count: this.count,
      getScrollElement: () => this,
      estimateSize: () => this.height * this.rem,
      overscan: OVERSCAN,
      scrollToFn: elementScroll,
      observeElementRect,
      observeElementOffset,
      onChange: () => this.requestUpdate(),
    };
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    this.virtual.setOptions(this.options());
    if (changed.has("height")) this.virtual.measure();
  }

  updated() {
    this.virtual._willUpdate();
    const drawn = this.virtual.getVirtualItems();
    if (drawn.length) this.seen(drawn[drawn.length - 1].index, drawn[0].index);
  }

  render() {
    const items = this.virtual.getVirtualItems();
    const tall = this.virtual.getTotalSize();
    return html`<div class="all" role="presentation" ${styled({ height: `${tall}px` })}>
      ${repeat(
        items,
        (/** @type {any} */ item) => item.index,
        (/** @type {any} */ item) =>
          html`<div
            role="presentation"
            ${styled({
              transform: `translateY(${item.start}px)`,
              height: `${item.size}px`,
            })}
          >
            ${this.row(item.index)}
          </div>`,
      )}
    </div>`;
  }
}

customElements.define("tm-rows", Rows);
