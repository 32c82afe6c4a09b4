// The event stream of everything that pages show, opened again whenever it ends.

const ADDRESS = "/api/v1/events";
const KINDS = ["tag", "rebuild", "preview", "worker"];
const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 2_000;
// A session that has ended is no business of the server's every other second.
const MAX_REFUSED_MS = 30_000;

/** What is heard: an event of the server, that the stream is open (what has happened before may have
 * been missed), or that the server cannot be reached.
 * @typedef {{kind: string, data?: any}} Heard */

/** @param {number} milliseconds */
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Runs in a page or in the worker that pages share: it uses nothing that only one of them has. */
export class Stream {
  /** @param {(heard: Heard) => void} hear */
  constructor(hear) {
    this.hear = hear;
    /** @type {EventSource | null} */
    this.source = null;
    this.isLost = false;
    this.isMending = false;
    this.failures = 0;
  }

  open() {
    const source = (this.source = new EventSource(ADDRESS));
    source.addEventListener("open", () => {
      this.isLost = false;
      this.failures = 0;
      this.hear({ kind: "open" });
    });
    for (const kind of KINDS)
      source.addEventListener(kind, (event) => this.hear({ kind, data: JSON.parse(event.data) }));
    source.addEventListener("error", () => this.mend(source));
  }

  close() {
    this.source?.close();
    this.source = null;
  }

  /** A stream that the server has ended is asked for again by the browser, from where it was. One that
   * was refused, and every one of a server that was away, is opened anew here.
   * @param {EventSource} source */
  async mend(source) {
    if (this.isMending) return;
    this.isMending = true;
    while (this.source === source && !(await isThere())) {
      this.isLost = true;
      this.hear({ kind: "lost" });
      await this.wait(MAX_RETRY_MS);
    }
    const isRefused = source.readyState === EventSource.CLOSED;
    if (this.source === source && isRefused && !this.isLost) await this.wait(MAX_REFUSED_MS);
    this.isMending = false;
    if (this.source !== source || !(this.isLost || isRefused)) return;
    this.close();
    this.open();
  }

  /** @param {number} most */
  async wait(most) {
    await pause(Math.min(FIRST_RETRY_MS * 2 ** this.failures, most));
    this.failures = Math.min(this.failures + 1, 10);
  }
}

/** Whether the server answers. */
async function isThere() {
  const answer = await fetch("/healthz", { cache: "no-store" }).catch(() => null);
  return answer !== null && answer.ok;
}
