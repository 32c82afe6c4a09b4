// What the server says to the pages of this browser, as it happens: see stream.mjs.
import { connection, notice } from "./http.mjs";
import { allowed, session } from "./session.mjs";
import { Stream } from "./stream.mjs";

/** Hears "tag", "rebuild", "preview" and "worker" with what the API's events have, and "missed" when
 * something may have happened unheard. */
export const live = new EventTarget();

/** @param {import("./stream.mjs").Heard} heard */
function hear({ kind, data }) {
  if (kind === "lost") return notice(true);
  if (kind === "open") notice(false);
  live.dispatchEvent(new CustomEvent(kind === "open" ? "missed" : kind, { detail: data }));
}

/** Where browsers have no shared workers: each page that somebody sees has a stream of its own. */
function alone() {
  const stream = new Stream(hear);
  const look = () => {
    if (document.hidden) stream.close();
    else if (stream.source === null) stream.open();
  };
  document.addEventListener("visibilitychange", look);
  look();
}

/** Named by who is logged in: nobody hears what another one may. */
function together() {
  const address = new URL("../live-worker.mjs", import.meta.url);
  const worker = new SharedWorker(address, { type: "module", name: `tagmill of ${session.user}` });
  worker.addEventListener("error", alone, { once: true });
  worker.port.onmessage = (event) => hear(event.data);
  addEventListener("pagehide", () => worker.port.postMessage("gone"), { once: true });
}

connection.addEventListener("found", () => live.dispatchEvent(new CustomEvent("missed")));
if (!allowed("viewer")) {
  // The stream is of the whole fleet. Pages look now and then.
} else if (typeof SharedWorker === "function") {
  together();
  // A page that comes back from the browser's memory had let the worker go.
  addEventListener("pageshow", (event) => event.persisted && together());
} else alone();
