// XPath 1.0 in colours: the tokens of a definition, by the rules of its section 3.7.
import { html, nothing } from "../vendor/lit.mjs";

/** @typedef {"name" | "attribute" | "string" | "number" | "function" | "operator" | "space" | "other"} Kind */
/** @typedef {{kind: Kind, text: string}} Token */

const NAME = /[\p{L}_][\p{L}\p{N}_.\-·]*(?::(?:[\p{L}_][\p{L}\p{N}_.\-·]*|\*))?/uy;
const STRING = /"[^"]*"?|'[^']*'?/y;
const NUMBER = /\d+(?:\.\d*)?|\.\d+/y;
const SPACE = /[ \t\r\n]+/y;
const OPERATOR = /!=|<=|>=|::|\/\/?|\.\.|[=<>|+\-*@.,()[\]]/y;
const CALLED = /[ \t\r\n]*(\(|::)/y;
// Before these a line that is too long breaks.
const BREAKS = /^[/[(]/;
const WORDS = new Set(["and", "or", "div", "mod"]);
// After these a name is an operand, and never an operator.
const OPENING = new Set([
  "",
  "@",
  "::",
  "(",
  "[",
  ",",
  "/",
  "//",
  "|",
  "+",
  "-",
  "=",
  "!=",
  "<",
  "<=",
  ">",
  ">=",
  "and",
  "or",
  "div",
  "mod",
]);

/** @param {RegExp} pattern @param {string} text @param {number} at */
function match(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text)?.[0] ?? "";
}

/** The token that begins at a place. `before` is the text of the one before, without spaces.
 * @param {string} text @param {number} at @param {string} before @returns {Token} */
export function tokenAt(text, at, before) {
  for (const [pattern, kind] of /** @type {[RegExp, Kind][]} */ ([
    [SPACE, "space"],
    [STRING, "string"],
    [NUMBER, "number"],
  ])) {
    const found = match(pattern, text, at);
    if (found) return { kind, text: found };
  }
  const name = match(NAME, text, at);
  if (name) {
    if (WORDS.has(name) && !OPENING.has(before)) return { kind: "operator", text: name };
    if (before === "@") return { kind: "attribute", text: name };
    const called = match(CALLED, text, at + name.length);
    if (called) return { kind: "function", text: name };
    return { kind: "name", text: name };
  }
  const operator = match(OPERATOR, text, at);
  if (operator) return { kind: operator === "@" ? "attribute" : "operator", text: operator };
  return { kind: "other", text: String.fromCodePoint(/** @type {number} */ (text.codePointAt(at))) };
}

/** @param {string} text @returns {Token[]} */
export function tokens(text) {
  const found = [];
  let before = "";
  for (let at = 0; at < text.length;) {
    const token = tokenAt(text, at, before);
    found.push(token);
    at += token.text.length;
    if (token.kind !== "space") before = token.text;
  }
  return found;
}

/** The definition in colours. @param {string} text */
export function highlighted(text) {
  return html`<code class="xp" translate="no"
    >${tokens(text).map((token) =>
      token.kind === "space" || token.kind === "other"
        ? token.text
        : html`${BREAKS.test(token.text) ? html`<wbr />` : nothing}<span class="xp-${token.kind}">${token.text}</span>`,
    )}</code
  >`;
}

/** The place in UTF-16 units of the character with this number, from 1, as the API counts.
 * @param {string} text @param {number} column */
export function unit(text, column) {
  let at = 0;
  for (let left = column - 1; left > 0 && at < text.length; left -= 1) {
    at += /** @type {number} */ (text.codePointAt(at)) > 0xffff ? 2 : 1;
  }
  return at;
}

/** A text as a literal of XPath 1.0, which knows no escapes. @param {string} text */
export function literal(text) {
  if (!text.includes("'")) return `'${text}'`;
  if (!text.includes('"')) return `"${text}"`;
  return `concat(${text
    .split("'")
    .map((part) => `'${part}'`)
    .join(`, "'", `)})`;
}
