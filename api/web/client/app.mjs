// The frame: where one may go, who is logged in, and the page that the address names.
import { html, keyed, nothing } from "./vendor/lit.mjs";
import { forget } from "./base/asked.mjs";
import { connection } from "./base/http.mjs";
import { Part } from "./base/page.mjs";
import { here, route } from "./base/route.mjs";
import { allowed, session } from "./base/session.mjs";
import { showCommands } from "./parts/curl.mjs";
import "./pages/tags.mjs";

const ICON = new URL("style/icon.svg", import.meta.url).pathname;

/** @typedef {{title: string, shows: (place: import("./base/route.mjs").Place) => unknown, load?: () => Promise<unknown>}} Shown */
/** The pages but the first are loaded when they are wanted.
 * @type {Record<string, Shown>} */
const PAGES = {
  tags: { title: "Tags", shows: () => html`<tm-tags></tm-tags>` },
  editor: {
    title: "New tag",
    load: () => import("./pages/editor.mjs"),
    shows: ({ name, query }) => html`<tm-editor tag=${name} .query=${query}></tm-editor>`,
  },
  node: {
    title: "Node",
    load: () => import("./pages/node.mjs"),
    shows: ({ name, query }) => html`<tm-node name=${name} .query=${query}></tm-node>`,
  },
};
PAGES.nodes = {
  title: "Nodes",
  load: () => import("./pages/nodes.mjs"),
  shows: () => html`<tm-nodes-page></tm-nodes-page>`,
};
PAGES.health = {
  title: "Health",
  load: () => import("./pages/health.mjs"),
  shows: () => html`<tm-health></tm-health>`,
};
PAGES.fleet = { title: "Fleet", load: () => import("./pages/fleet.mjs"), shows: () => html`<tm-fleet></tm-fleet>` };
PAGES.vocabulary = {
  title: "Vocabulary",
  load: () => import("./pages/vocabulary.mjs"),
  shows: () => html`<tm-vocabulary></tm-vocabulary>`,
};
PAGES.recipes = {
  title: "Recipes",
  load: () => import("./pages/recipes.mjs"),
  shows: () => html`<tm-recipes></tm-recipes>`,
};
PAGES.account = {
  title: "Your account",
  load: () => import("./pages/account.mjs"),
  shows: () => html`<tm-account></tm-account>`,
};
const LINKS = [
  ["tags", "/", "Tags"],
  ["nodes", "/nodes/", "Nodes"],
  ["vocabulary", "/vocabulary", "Vocabulary"],
  ["recipes", "/recipes", "Recipes"],
  ["fleet", "/fleet", "Fleet"],
  ["health", "/health", "Health"],
];

/** What a page takes. @param {string} page @returns {boolean} */
function isOpen(page) {
  return page === "account" || allowed(page === "nodes" || page === "node" ? "nodes" : "viewer");
}

class App extends Part {
  static properties = { place: { state: true }, isLost: { state: true }, loaded: { state: true } };

  constructor() {
    super();
    this.place = here();
    this.isLost = false;
    this.loaded = new Set(["tags"]);
    route.addEventListener("change", () => this.changed());
    connection.addEventListener("lost", () => (this.isLost = true));
    connection.addEventListener("found", () => (this.isLost = false));
    void this.load();
  }

  changed() {
    const before = this.place;
    this.place = here();
    if (before.page !== this.place.page || before.name !== this.place.name) forget();
    void this.load();
    // A screen reader goes on at the new page.
    void this.updateComplete.then(() => this.querySelector("main")?.focus());
  }

  async load() {
    const { page, name } = this.place;
    document.title = `${name || PAGES[page]?.title || "Tagmill"} | Tagmill`;
    if (isOpen(page)) await PAGES[page]?.load?.();
    this.loaded = new Set([...this.loaded, page]);
    await this.updateComplete;
    this.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  render() {
    const { page, name } = this.place;
    const isLoaded = this.loaded.has(page);
    return html` <header class="side">
        <a class="skip button" href="#main" @click=${this.skip}>To the page</a>
        <a class="brand" href="/"><img src=${ICON} alt="" width="28" height="28" />Tagmill</a>
        <nav aria-label="Pages">
          <ul>
            ${LINKS.filter(([key = ""]) => isOpen(key)).map(
              ([key, address, title]) =>
                html` <li>
                  <a
                    href=${address}
                    aria-current=${key === page || (key === "tags" && page === "editor") || (key === "nodes" && page === "node") ? "page" : nothing}
                    >${title}</a
                  >
                </li>`,
            )}
          </ul>
        </nav>
        <div class="who small">
          <a
            class="name"
            href="/account"
            aria-current=${page === "account" ? "page" : nothing}
            title="${session.user}, ${session.role}: tokens and files"
            >${session.user} <span class="quiet">${session.role}</span></a
          >
          <button class="small" @click=${showCommands}>Copy as curl</button>
          <form method="post" action="/logout/">
            <input type="hidden" name="csrfmiddlewaretoken" .value=${csrf()} /><button class="small">Log out</button>
          </form>
        </div>
      </header>
      <main id="main" tabindex="-1">
        ${isOpen(page) ? (isLoaded ? keyed(`${page} ${name}`, PAGES[page]?.shows(this.place)) : nothing) : closed()}
      </main>
      <p class="lost" role="status" ?hidden=${!this.isLost}>
        ${this.isLost ? "The server cannot be reached. What you typed is kept; the page goes on when it is back." : ""}
      </p>`;
  }

  /** @param {Event} event */
  skip(event) {
    event.preventDefault();
    this.querySelector("main")?.focus();
  }
}

/** A page for which the role is not enough. */
function closed() {
  return html`<div class="card empty">
    <h1>This page takes a role that holds in all clusters</h1>
    ${
      allowed("nodes")
        ? html`<p>Yours holds in some: their nodes are open to you.</p>
            <a class="button" href="/nodes/">Nodes</a>`
        : html`<p>You may not read anything yet: an administrator can give you a role.</p>
            <a class="button" href="/account">Your account</a>`
    }
  </div>`;
}

function csrf() {
  return (
    document.cookie
      .split("; ")
      .find((found) => found.startsWith("csrftoken="))
      ?.slice(10) ?? ""
  );
}

customElements.define("tm-app", App);
