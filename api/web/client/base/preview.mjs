// What is to be said of a definition as it is typed, and what it would match: the last that was asked
// for. What does not parse is found by the check, and asked no further.
import { api, isAborted, Problem } from "./http.mjs";
import { live } from "./live.mjs";
import { allowed } from "./session.mjs";

// Pauses in typing, short enough for an answer 300 ms after the last key: a check costs little, and is
// there when the preview is asked for.
const CHECK_MS = 20;
const PREVIEW_MS = 60;
// So long the answer is waited for, which has it soonest: a second in the request that asks for it, then
// in one that shows how far it is. What takes longer is heard of by the event stream: a preview that
// nobody evaluates holds no connection.
const FIRST_WAIT_SECONDS = 1;
const WAIT_SECONDS = 2;
const LOOK_MS = 10_000;
const GONE = new Set(["preview_gone", "not_found"]);

/** @typedef {{definition: string, namespaces: Record<string, string>, compare_to: string | null}} Asked */

/** Hears "change". `found` is of `asked` alone: it is null from the first key of another definition. */
export class Preview extends EventTarget {
  constructor() {
    super();
    this.client = `workbench-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
    /** @type {any} */
    this.found = null;
    /** What was found last, of whichever definition: shown until there is something newer. @type {any} */
    this.last = null;
    /** @type {import("../parts/code.mjs").Finding[]} */
    this.findings = [];
    /** Why the definition does not parse. */
    this.wrong = "";
    /** @type {Problem | null} */
    this.problem = null;
    this.isWaiting = false;
    /** @type {AbortController | null} */
    this.running = null;
    this.timer = 0;
    /** @type {Asked | null} */
    this.asked = null;
  }

  /** @param {Asked} asked @param {{now?: boolean}} [how] */
  ask(asked, { now = false } = {}) {
    this.stop();
    this.asked = asked;
    this.found = null;
    if (!asked.definition.trim()) {
      this.last = this.problem = null;
      this.findings = [];
      this.wrong = "";
      this.isWaiting = false;
      this.say();
      return;
    }
    this.isWaiting = true;
    this.timer = setTimeout(() => this.run(asked, now ? 0 : PREVIEW_MS - CHECK_MS), now ? 0 : CHECK_MS);
    this.say();
  }

  stop() {
    clearTimeout(this.timer);
    this.running?.abort();
    this.running = null;
  }

  /** Asks again, as when the preview has ended. */
  again() {
    if (this.asked !== null) this.ask(this.asked, { now: true });
  }

  /** @param {Asked} asked @param {number} rest Of the pause. */
  async run(asked, rest) {
    const running = (this.running = new AbortController());
    const { signal } = running;
    const rested = new Promise((done) => setTimeout(done, rest));
    const { definition, namespaces } = asked;
    try {
      const { error, warnings } = await api("definitions/check", {
        method: "POST",
        body: { definition, namespaces },
        signal,
      });
      this.wrong = error?.message ?? "";
      this.findings = error ? [{ ...error, end_column: error.column, severity: "error" }] : warnings;
      if (error || !allowed("operator")) {
        this.isWaiting = false;
        this.problem = null;
        return this.say();
      }
      this.say();
      await rested;
      if (signal.aborted) return;
      const body = { ...asked, client: this.client };
      let found = await api("previews/?limit=1", { method: "POST", body, signal, wait: FIRST_WAIT_SECONDS });
      this.take(found);
      const ends = performance.now() + 1000 * WAIT_SECONDS;
      while (found.state === "evaluating") {
        const isNew = performance.now() < ends;
        if (!isNew) await changed(found.uuid, signal);
        found = await api(`previews/${found.uuid}?limit=1`, { signal, wait: isNew ? WAIT_SECONDS : 0 });
        this.take(found);
      }
    } catch (error) {
      if (signal.aborted || isAborted(error)) return;
      if (!(error instanceof Problem)) throw error;
      this.refused(error);
    }
  }

  /** @param {any} found */
  take(found) {
    this.found = found;
    if (found.node_count !== null) this.last = found;
    this.problem = null;
    this.isWaiting = found.state === "evaluating";
    this.say();
  }

  /** @param {Problem} problem */
  refused(problem) {
    const seconds = problem.body.retry_after ?? (problem.code === "lost" ? 1 : 0);
    if (seconds || GONE.has(problem.code)) {
      this.timer = setTimeout(() => this.again(), 1000 * Math.max(seconds, 0.2));
      return;
    }
    this.problem = problem;
    this.isWaiting = false;
    this.say();
  }

  say() {
    this.dispatchEvent(new Event("change"));
  }
}

/** Until the server says that something of the preview is new, or may have said so, or for LOOK_MS.
 * @param {string} uuid @param {AbortSignal} signal */
async function changed(uuid, signal) {
  const heard = new AbortController();
  await new Promise((done) => {
    const how = { signal: heard.signal };
    signal.addEventListener("abort", done, how);
    live.addEventListener("missed", done, how);
    live.addEventListener("preview", (event) => /** @type {any} */ (event).detail.preview === uuid && done(null), how);
    setTimeout(done, LOOK_MS);
  });
  heard.abort();
}
