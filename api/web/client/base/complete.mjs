// What may follow in a definition: the fleet's own elements, attributes and values, with their counts.
import { api } from "./http.mjs";
import { count } from "./format.mjs";
import { tokenAt } from "./xpath.mjs";

const MOST = 100;
const FUNCTIONS = [
  "contains",
  "starts-with",
  "count",
  "not",
  "number",
  "normalize-space",
  "string-length",
  "sum",
  "string",
  "substring-before",
  "substring-after",
  "translate",
  "concat",
  "boolean",
  "position",
  "last",
  "local-name",
  "true",
  "false",
];
const WORD = /^[\p{L}\p{N}_.\-:]*$/u;

/** Where somebody writes: `under` and `prefix` are the vocabulary's question, `from` is where what
 * has been written of the word begins; `quote` is the quote that it stands in.
 * @typedef {{under: string, prefix: string, from: number, quote: string, wants: "elements" | "attributes" | "values" | "any"}} Spot */

/** @param {string} text @param {number} at @returns {Spot | null} Null where nothing of the fleet's can stand. */
export function spot(text, at) {
  /** The elements around, innermost last: what `.` is there. @type {string[]} */
  const around = [""];
  let step = "";
  let operand = "";
  let before = "";
  const inside = () => around[around.length - 1] ?? "";
  for (let place = 0; place < at;) {
    const token = tokenAt(text, place, before);
    const end = place + token.text.length;
    if (token.kind === "string") {
      const quote = token.text[0] ?? "";
      const isOpen =
        end > at || token.text.length === 1 || !token.text.endsWith(quote) || (end === at && text[at - 1] !== quote);
      if (isOpen)
        return operand === ""
          ? null
          : { under: operand, prefix: text.slice(place + 1, at), from: place + 1, quote, wants: "values" };
    } else if (token.kind !== "space" && end === at && /[\p{L}\p{N}_]$/u.test(token.text) && token.kind !== "number") {
      return named(before, step, inside(), token.text, place);
    } else if (token.text === "[") around.push(step);
    else if (token.text === "]") step = around.length > 1 ? /** @type {string} */ (around.pop()) : "";
    else if (token.text === "(") around.push(inside());
    else if (token.text === ")") around.length > 1 && around.pop();
    else if (token.kind === "name") operand = `${(step = token.text)}/text()`;
    else if (token.kind === "attribute" && token.text !== "@")
      operand = `${pathless(before, place, text) ? inside() || "*" : step || "*"}/@${token.text}`;
    else if (token.text === ".") operand = `${(step = inside()) || "*"}/text()`;
    else if (token.text === "*") step = "*";
    else if (token.kind === "function" && token.text === "text") operand = `${step || inside() || "*"}/text()`;
    else if (token.kind === "operator" && !["/", "//", "@", "::"].includes(token.text)) step = inside();
    if (token.kind !== "space") before = token.text;
    place = end;
  }
  return named(before, step, inside(), "", at);
}

/** Whether the attribute at a place stands alone, as in `[@class]`, and not after a path.
 * @param {string} before @param {number} place @param {string} text */
function pathless(before, place, text) {
  return before === "@" && !/\/\s*@?\s*$/.test(text.slice(0, place));
}

/** @param {string} before @param {string} step @param {string} inside @param {string} prefix @param {number} from @returns {Spot | null} */
function named(before, step, inside, prefix, from) {
  if (before === "@") return { under: step || inside || "*", prefix, from, quote: "", wants: "attributes" };
  if (before === "//") return { under: "", prefix, from, quote: "", wants: "elements" };
  if (before === "/") return { under: step, prefix, from, quote: "", wants: "elements" };
  if (["", "[", "(", ",", "and", "or", "|", "=", "!=", "<", ">", "<=", ">="].includes(before))
    return { under: inside, prefix, from, quote: "", wants: "any" };
  return null;
}

/** CodeMirror's source of completions. @param {any} context */
export async function completions(context) {
  const text = context.state.doc.toString();
  const found = spot(text, context.pos);
  if (found === null || (!context.explicit && found.wants === "any" && found.prefix === "")) return null;
  const query = new URLSearchParams({ under: found.under, prefix: found.prefix, limit: String(MOST) });
  const aborted = new AbortController();
  context.addEventListener("abort", () => aborted.abort());
  const words = await api(`vocabulary?${query}`, { signal: aborted.signal }).catch(() => null);
  if (words === null || context.aborted) return null;
  const options = words.results
    .filter((/** @type {any} */ word) => fits(word, found))
    .map((/** @type {any} */ word, /** @type {number} */ place) => option(word, found, place));
  if (found.wants === "any")
    options.push(...FUNCTIONS.map((name) => ({ label: `${name}()`, apply: `${name}(`, type: "function", boost: -99 })));
  const validFor = words.truncated
    ? undefined
    : found.quote
      ? (/** @type {string} */ typed) => !typed.includes(found.quote)
      : WORD;
  return options.length ? { from: found.from, options, validFor } : null;
}

/** @param {any} word @param {Spot} found */
function fits(word, found) {
  if (word.name.startsWith("{")) return false;
  if (found.wants === "values") return word.name !== "" && !word.name.includes(found.quote);
  if (found.wants === "attributes") return word.kind === "attribute";
  return word.kind === "element" || found.wants === "any";
}

/** @param {any} word @param {Spot} found @param {number} place */
function option(word, found, place) {
  const name = word.kind === "attribute" && found.wants === "any" ? `@${word.name}` : word.name;
  const detail = word.documents === null ? "" : `${count(word.documents)}`;
  return { label: name, apply: name, detail, type: word.kind, boost: Math.max(-90, 90 - place) };
}
