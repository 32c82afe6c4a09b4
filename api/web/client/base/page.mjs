// What all pages have in common: they are drawn into the document, and look at the server while seen.
import { html, LitElement, nothing } from "../vendor/lit.mjs";
import { isAborted, Problem } from "./http.mjs";

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

  disconnectedCallback() {
    super.disconnectedCallback();
    for (const end of this.endings) end();
    this.endings.clear();
  }

  /** Calls it now and after each pause, and only while somebody can see the page. The next call
   * comes so many seconds after the one before has ended.
   * @param {() => Promise<unknown>} look @param {() => number} seconds */
  every(look, seconds) {
    let timer = 0;
    let isOver = false;
    const again = async () => {
      clearTimeout(timer);
      if (isOver || document.hidden) return;
      await this.trying(look);
      clearTimeout(timer);
      if (!isOver) timer = setTimeout(again, 1000 * seconds());
    };
    document.addEventListener("visibilitychange", again);
    this.endings.add(() => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", again);
    });
    void again();
    return again;
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

  shownProblem() {
    return this.problem === null ? nothing : html`<p class="error" role="alert">${this.problem.message}</p>`;
  }
}
