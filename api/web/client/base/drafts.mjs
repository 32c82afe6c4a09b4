// What was typed and not saved: it outlives the page, in this browser alone.
import { session } from "./session.mjs";

/** @typedef {{name: string, definition: string, comment: string, namespaces: Record<string, string>}} Draft */
/** `base` is what the tag said when the typing began, `etag` its entity tag then.
 * @typedef {Draft & {base?: Draft, etag?: string}} Kept */

/** @type {Draft} */
export const EMPTY = { name: "", definition: "", comment: "", namespaces: {} };

/** What is written of a tag, and published when it is evaluated. @param {any} row @returns {Draft} */
export function said(row) {
  return {
    name: row.name,
    comment: row.comment,
    definition: row.pending_definition ?? row.definition ?? "",
    namespaces: row.pending_namespaces ?? row.namespaces,
  };
}

/** @param {string} tag */
const key = (tag) => `tagmill draft of ${session.user}: ${tag}`;

/** @param {string} tag @returns {Kept | null} */
export function kept(tag) {
  try {
    return JSON.parse(localStorage.getItem(key(tag)) ?? "null");
  } catch {
    return null;
  }
}

/** @param {string} tag @param {Kept} draft */
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

/** Whether two say the same. @param {Draft} one @param {Draft} other */
export function areSame(one, other) {
  const { name, definition, comment } = other;
  return (
    one.name === name &&
    one.definition === definition &&
    one.comment === comment &&
    JSON.stringify(one.namespaces) === JSON.stringify(other.namespaces)
  );
}
