// The machines that somebody keeps in sight while definitions are typed, in this browser alone.
import { session } from "./session.mjs";

export const MAX_PINS = 50;
const KEY = `tagmill pinned nodes of ${session.user}`;

/** Hears "change" when a machine is pinned or let go, in any tab. */
export const pins = new EventTarget();

/** @returns {string[]} system_ids, those pinned last at the end. */
export function pinned() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((name) => typeof name === "string").slice(0, MAX_PINS) : [];
  } catch {
    return [];
  }
}

/** Returns false where there are too many already. @param {string} name */
export function pin(name) {
  const before = pinned().filter((found) => found !== name);
  if (before.length >= MAX_PINS) return false;
  write([...before, name]);
  return true;
}

/** @param {string} name */
export function unpin(name) {
  write(pinned().filter((found) => found !== name));
}

/** @param {string[]} names */
function write(names) {
  try {
    localStorage.setItem(KEY, JSON.stringify(names));
  } catch {
    // A full or forbidden store keeps nothing; the page works on.
  }
  pins.dispatchEvent(new Event("change"));
}

addEventListener("storage", (event) => event.key === KEY && pins.dispatchEvent(new Event("change")));
