// Numbers and times as people read them.
import { html, nothing } from "../vendor/lit.mjs";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const share = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 });
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "narrow" });
/** @type {[Intl.RelativeTimeFormatUnit, number][]} */
const UNITS = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
  ["second", 1],
];

/** @param {number | null | undefined} number */
export function count(number) {
  return number === null || number === undefined ? "-" : whole.format(number);
}

const small = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** So many a second: small ones with a digit behind the point. @param {number | null | undefined} number */
export function rate(number) {
  return number !== null && number !== undefined && number < 100 ? small.format(number) : count(number);
}

/** "1 node", "2 nodes". @param {number} number @param {string} one */
export function several(number, one) {
  return `${whole.format(number)} ${one}${number === 1 ? "" : "s"}`;
}

/** @param {number} part @param {number} of */
export function percent(part, of) {
  return of ? share.format(part / of) : "-";
}

/** @param {string | number | Date} moment @param {number} [now] */
export function ago(moment, now = Date.now()) {
  const seconds = (new Date(moment).getTime() - now) / 1000;
  if (Math.abs(seconds) < 1) return "just now";
  const [unit, size] = UNITS.find(([, found]) => Math.abs(seconds) >= found) ?? ["second", 1];
  return relative.format(Math.round(seconds / size), unit);
}

/** A relative time, with the absolute one on hover. @param {string | null | undefined} moment */
export function time(moment) {
  if (!moment) return nothing;
  return html`<time datetime=${moment} title=${new Date(moment).toLocaleString()}>${ago(moment)}</time>`;
}

/** @param {number | null} seconds */
export function duration(seconds) {
  if (seconds === null) return "";
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}
