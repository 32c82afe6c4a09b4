// A node's document as a tree to look at: its elements in document order, and what they are about.
import { api, segment } from "./http.mjs";
import { literal } from "./xpath.mjs";

const MAIN = "lshw";
const MAX_SHOWN = 160;
// What says most of an lshw element.
const ABOUT = ["product", "vendor", "description", "size", "logicalname"];

/** `at` is the place in document order; `end` is that of the first element after its descendants.
 * @typedef {{at: number, end: number, depth: number, parent: number, element: Element, said: string}} Item */

/** The documents of all probes as one, as definitions see them: the others' roots are in the main one's.
 * @param {string} system_id @param {string[]} probes @returns {Promise<Document | null>} */
export async function document_of(system_id, probes) {
  const order = [...probes].sort((a, b) => Number(b === MAIN) - Number(a === MAIN) || (a < b ? -1 : 1));
  const texts = await Promise.all(
    order.map((probe) =>
      api(`nodes/${segment(system_id)}/document?probe=${segment(probe)}`, { type: "application/xml" }),
    ),
  );
  if (order.length === 0) return null;
  const parsed = texts.map((text) => new DOMParser().parseFromString(text, "application/xml"));
  const main = order[0] === MAIN ? parsed.shift() : document.implementation.createDocument(null, "list");
  const others = order.filter((probe) => probe !== MAIN);
  if (main)
    parsed.forEach((other, place) =>
      main.documentElement.append(within(main, other.documentElement, others[place] ?? "")),
    );
  return main ?? null;
}

/** A probe's element, in the namespace of the probe's name where it had none.
 * @param {Document} main @param {Element} element @param {string} probe @returns {Element} */
function within(main, element, probe) {
  const made = main.createElementNS(element.namespaceURI ?? probe, element.tagName);
  for (const { name, value } of element.attributes) if (!name.startsWith("xmlns")) made.setAttribute(name, value);
  for (const child of element.childNodes)
    made.append(child instanceof Element ? within(main, child, probe) : main.importNode(child, true));
  return made;
}

/** @param {Document} made @returns {Item[]} */
export function items(made) {
  /** @type {Item[]} */
  const found = [];
  /** @param {Element} element @param {number} depth @param {number} parent */
  const walk = (element, depth, parent) => {
    const item = { at: found.length, end: 0, depth, parent, element, said: said(element) };
    found.push(item);
    for (const child of element.children) walk(child, depth + 1, item.at);
    item.end = found.length;
  };
  walk(made.documentElement, 0, -1);
  return found;
}

/** @param {Element} element */
function said(element) {
  if (element.children.length === 0) return cut(element.textContent?.trim() ?? "");
  const texts = ABOUT.map((name) =>
    [...element.children].find((child) => child.localName === name)?.textContent?.trim(),
  ).filter(Boolean);
  return cut([...new Set(texts)].slice(0, 3).join(", "));
}

/** @param {string} text */
function cut(text) {
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}...` : text;
}

/** The elements that hits of an explanation are, or are in.
 * @param {Document} made @param {string[]} paths @param {Record<string, string>} namespaces @returns {Set<Element>} */
export function marked(made, paths, namespaces) {
  const found = new Set();
  const resolve = (/** @type {string | null} */ prefix) => (prefix && namespaces[prefix]) || prefix;
  for (const path of paths) {
    try {
      const element =
        path.replace(/\/(?:@[^/]*|text\(\)|comment\(\)|processing-instruction\(\))(?:\[\d+\])?$/, "") || "/*";
      const node = made.evaluate(element, made, resolve, XPathResult.FIRST_ORDERED_NODE_TYPE).singleNodeValue;
      if (node instanceof Element) found.add(node);
    } catch {
      // The end of a path that was too long to be told whole.
    }
  }
  return found;
}

/** A definition that is true of machines with an element like this. @param {Element} element */
export function definition(element) {
  const parent = element.parentElement;
  const text = element.children.length === 0 ? (element.textContent?.trim() ?? "") : "";
  if (text && parent !== null) return `${step(parent, "class")}/${name(element)}[. = ${literal(text)}]`;
  const product = [...element.children].find((child) => child.localName === "product")?.textContent?.trim();
  if (element.localName === "node" && product) return `${step(element, "class")}[product = ${literal(product)}]`;
  return step(element, element.hasAttribute("id") ? "id" : "class");
}

/** @param {Element} element @param {string} attribute */
function step(element, attribute) {
  const value = element.getAttribute(attribute);
  return `//${name(element)}${value ? `[@${attribute} = ${literal(value)}]` : ""}`;
}

/** @param {Element} element */
function name(element) {
  return element.namespaceURI === null ? element.localName : `*[local-name() = ${literal(element.localName)}]`;
}
