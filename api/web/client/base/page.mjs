// What all pages have in common: they are drawn into the document, and look at the server while seen.
import { html, LitElement, nothing } from "../vendor/lit.mjs";
import { isAborted, Problem } from "./http.mjs";
import { live } from "./live.mjs";

// Between two looks at the server, however much happens there.
const MIN_MS = 1000;
const CALM_SECONDS = 30;
// So often relative times are written anew.
const REDRAW_MS = 5000;

/** An element without a root of its own: the document's styles and labels reach it. */
export class Part extends LitElement {
  createRenderRoot() {
    return this;
  }
}

export class Page extends Part {
  static properties = { problem: { state: true } };

  constructor() {
    super();
    /** @type {Problem | null} */
    this.problem = null;
    /** @type {Set<() => void>} */
    this.endings = new Set();
  }

  connectedCallback() {
    super.connectedCallback();
    const timer = setInterval(() => document.hidden || this.requestUpdate(), REDRAW_MS);
    this.endings.add(() => clearInterval(timer));
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    for (const end of this.endings) end();
    this.endings.clear();
  }

  /** Looks at the server now, whenever the event stream has one of these kinds (and `isMeant` agrees),
   * and after so many seconds without: not everything is an event. At most once a second, and only
   * while somebody can see the page. Returns what looks soon.
   * @param {() => Promise<unknown>} look
   * @param {{kinds?: string[], seconds?: number, isMeant?: (data: any) => boolean}} [how] */
  watch(look, { kinds = [], seconds = CALM_SECONDS, isMeant = () => true } = {}) {
    let timer = 0;
    let last = -MIN_MS;
    let isOver = false;
    let isLooking = false;
    let isWanted = false;
    const again = async () => {
      clearTimeout(timer);
      if (isOver || document.hidden) return;
      [isLooking, isWanted] = [true, false];
      await this.trying(look);
      isLooking = false;
      last = performance.now();
      if (!isOver) timer = setTimeout(again, isWanted ? MIN_MS : 1000 * seconds);
    };
    const soon = () => {
      isWanted = true;
      if (isLooking || isOver) return;
      clearTimeout(timer);
      timer = setTimeout(again, Math.max(0, last + MIN_MS - performance.now()));
    };
    const heard = (/** @type {any} */ event) => (event.type === "missed" || isMeant(event.detail)) && soon();
    for (const kind of [...kinds, "missed"]) live.addEventListener(kind, heard);
    document.addEventListener("visibilitychange", soon);
    this.endings.add(() => {
      isOver = true;
      clearTimeout(timer);
      for (const kind of [...kinds, "missed"]) live.removeEventListener(kind, heard);
      document.removeEventListener("visibilitychange", soon);
    });
    void again();
    return soon;
  }

  /** Does it, and shows what went wrong until something goes right.
   * @template T @param {() => Promise<T>} work @returns {Promise<T | undefined>} */
  async trying(work) {
    try {
      const found = await work();
      this.problem = null;
      return found;
    } catch (error) {
      if (isAborted(error)) return undefined;
      if (!(error instanceof Problem)) throw error;
      this.problem = error;
      return undefined;
    }
  }

  /** What a page is about is not there. @param {string} address @param {string} title Where else to look. */
  none(address, title) {
    if (this.problem?.code === "lost") return html`<p class="quiet">Loading ...</p>`;
    return html`<div class="card empty">
      <h1>${this.problem?.status === 404 ? "There is no such page" : "This cannot be shown"}</h1>
      <p role="alert">${this.problem?.message}</p>
      <a class="button" href=${address}>${title}</a>
    </div>`;
  }

  /** A server that cannot be reached is said once, by the frame. */
  shownProblem() {
    return this.problem === null || this.problem.code === "lost"
      ? nothing
      : html`<p class="error" role="alert">${this.problem.message}</p>`;
  }
}
