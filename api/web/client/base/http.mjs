// Requests to the API: JSON in and out, problems as errors that say what to do next.
import { note } from "./asked.mjs";

const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 2_000;

/** What the server refused, or that it could not be reached (`code` is then "lost"). */
export class Problem extends Error {
  /** @param {{code: string, detail: string, status?: number, [member: string]: any}} body */
  constructor(body) {
    super(body.detail);
    this.code = body.code;
    this.status = body.status ?? 0;
    this.body = body;
  }
}

/** Hears "lost" and "found" as the connection goes and comes back. */
export const connection = new EventTarget();
let isLost = false;

/** @param {boolean} lost */
export function notice(lost) {
  if (lost === isLost) return;
  isLost = lost;
  connection.dispatchEvent(new Event(lost ? "lost" : "found"));
  if (lost) void lookAgain(FIRST_RETRY_MS);
}

/** @param {number} pause */
async function lookAgain(pause) {
  while (isLost) {
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(2 * pause, MAX_RETRY_MS);
    const answer = await fetch("/healthz").catch(() => null);
    if (answer?.ok) notice(false);
  }
}

/** @param {string} name */
function cookie(name) {
  return (
    document.cookie
      .split("; ")
      .find((found) => found.startsWith(`${name}=`))
      ?.slice(name.length + 1) ?? ""
  );
}

/**
 * @typedef {object} Asked
 * @property {string} [method]
 * @property {unknown} [body]
 * @property {AbortSignal} [signal]
 * @property {number} [wait] Seconds that the answer may be held back.
 * @property {string} [type] Of the answer, where it is no JSON.
 * @property {string} [match] The entity tag that the resource must have still.
 */

/** The answer to a request: parsed, or the text where it has another `type`. Raises Problem.
 * @param {string} path Relative to /api/v1/, or an address that the API gave.
 * @param {Asked} [asked]
 * @returns {Promise<any>} */
export async function api(path, asked) {
  return (await tagged(path, asked))[0];
}

/** The answer and its entity tag. Raises Problem.
 * @param {string} path @param {Asked} [asked] @returns {Promise<[any, string]>} */
export async function tagged(path, { method = "GET", body, signal, wait, type, match } = {}) {
  const headers = new Headers({ Accept: type ?? "application/json" });
  if (body !== undefined) headers.set("Content-Type", "application/json");
  if (method !== "GET") headers.set("X-CSRFToken", cookie("csrftoken"));
  if (wait) headers.set("Prefer", `wait=${wait}`);
  if (match) headers.set("If-Match", match);
  const address = new URL(path, new URL("/api/v1/", location.href));
  note(method, address.pathname + address.search, body);
  let answer;
  try {
    answer = await fetch(address.pathname + address.search, {
      method,
      headers,
      signal,
      body: body === undefined ? null : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    notice(true);
    throw new Problem({
      code: "lost",
      detail: "The server cannot be reached. The page goes on by itself when it is back.",
    });
  }
  notice(false);
  if (answer.ok) {
    const found = answer.status === 204 ? null : await (type ? answer.text() : answer.json());
    return [found, answer.headers.get("ETag") ?? ""];
  }
  if (answer.status === 401) location.assign(`/login/?next=${encodeURIComponent(location.pathname)}`);
  const problem = await answer.json().catch(() => ({}));
  throw new Problem({
    code: "internal",
    detail: `The server answered ${answer.status}.`,
    status: answer.status,
    ...problem,
  });
}

/** All pages of a list.
 * @param {string} path
 * @param {number} [most] Rows; then it ends.
 * @returns {Promise<any[]>} */
export async function all(path, most = 10_000) {
  const found = [];
  /** @type {string | null} */
  let next = path;
  while (next !== null && found.length < most) {
    const page = await api(next);
    found.push(...page.results);
    next = page.next;
  }
  return found;
}

/** @param {unknown} error */
export function isAborted(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/** @param {string} name */
export function segment(name) {
  return encodeURIComponent(name);
}
