// What was typed and not saved: it outlives the page, in this browser alone.
import { session } from "./session.mjs";

/** @typedef {{name: string, definition: string, comment: string, namespaces: Record<string, string>}} Draft */

/** @param {string} tag */
const key = (tag) => `tagmill draft of ${session.user}: ${tag}`;

/** @param {string} tag @returns {Draft | null} */
export function kept(tag) {
  try {
    return JSON.parse(localStorage.getItem(key(tag)) ?? "null");
  } catch {
    return null;
  }
}

/** @param {string} tag @param {Draft} draft */
export function keep(tag, draft) {
  try {
    localStorage.setItem(key(tag), JSON.stringify(draft));
  } catch {
    // A full or forbidden store keeps nothing; the page works on.
  }
}

/** @param {string} tag */
export function drop(tag) {
  localStorage.removeItem(key(tag));
}
