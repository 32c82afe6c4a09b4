// Which page an address shows. Links inside the workbench change the page without loading it anew.

/** @typedef {{page: string, name: string, query: URLSearchParams}} Place */

const PAGES = new Set(["health", "fleet", "vocabulary", "recipes", "account"]);

export const route = new EventTarget();

/** @returns {Place} */
export function here() {
  const [first = "", ...rest] = location.pathname.split("/").filter((part) => part !== "");
  const name = rest.map(decodeURIComponent).join("/");
  const query = new URLSearchParams(location.search);
  if (first === "nodes") return { page: name ? "node" : "nodes", name, query };
  if (first === "new") return { page: "editor", name: "", query };
  if (first === "tags" && name) return { page: "editor", name, query };
  return { page: PAGES.has(first) ? first : "tags", name: "", query };
}

/** @param {string} address @param {{replace?: boolean}} [how] */
export function go(address, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  route.dispatchEvent(new Event("change"));
}

addEventListener("popstate", () => route.dispatchEvent(new Event("change")));

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
    return;
  const link = event.composedPath().find((item) => item instanceof HTMLAnchorElement);
  if (!link || link.origin !== location.origin || link.target || link.hasAttribute("download")) return;
  if (/^\/(api|admin|static|login|logout)\//.test(link.pathname)) return;
  event.preventDefault();
  go(link.pathname + link.search);
});
