// One machine: what it is made of, its tags, and why it has one or not.
import { html, nothing } from "../vendor/lit.mjs";
import { api, segment } from "../base/http.mjs";
import { count, several, time } from "../base/format.mjs";
import { document_of, marked } from "../base/hardware.mjs";
import { Page } from "../base/page.mjs";
import { pin, pinned, unpin } from "../base/pins.mjs";
import { go } from "../base/route.mjs";
import { allowed } from "../base/session.mjs";
import { highlighted } from "../base/xpath.mjs";
import "../parts/tree.mjs";
import { hits, why } from "../parts/why.mjs";

class NodePage extends Page {
  static properties = {
    ...Page.properties,
    name: {},
    query: { attribute: false },
    node: { state: true },
    document: { state: true },
    all: { state: true },
    answer: { state: true },
    marks: { state: true },
    isAsking: { state: true },
    isPinned: { state: true },
    isRead: { state: true },
  };

  constructor() {
    super();
    this.name = "";
    this.query = new URLSearchParams();
    /** @type {any} */
    this.node = null;
    /** @type {any[]} */
    this.all = [];
    /** @type {Document | null} */
    this.document = null;
    /** @type {any} */
    this.answer = null;
    /** @type {Set<Element>} */
    this.marks = new Set();
    this.isAsking = false;
    this.isPinned = false;
    /** Whether the document is here, or known to be none. */
    this.isRead = false;
  }

  togglePin() {
    if (this.isPinned) unpin(this.name);
    else pin(this.name);
    this.isPinned = pinned().includes(this.name);
  }

  connectedCallback() {
    super.connectedCallback();
    this.isPinned = pinned().includes(this.name);
    void this.trying(() => this.open());
  }

  async open() {
    const id = segment(this.name);
    const tags = allowed("viewer") ? api("tags/?limit=1000") : { results: [] };
    const [node, all] = await Promise.all([api(`nodes/${id}`), tags]);
    this.node = node;
    this.all = all.results;
    document.title = `${node.hostname || this.name} | Tagmill`;
    this.document = await document_of(
      this.name,
      node.probes.map((/** @type {any} */ probe) => probe.probe),
    );
    this.isRead = true;
    this.watch(async () => (this.node = await api(`nodes/${id}`)), { kinds: ["tag", "rebuild"] });
    await this.explain();
  }

  /** @returns {string[]} */
  get tags() {
    return this.node?.tags ?? [];
  }

  /** By the definition in the address, or by its tag. */
  async explain() {
    const { query } = this;
    const definition = query.get("definition");
    const tag = query.get("tag");
    if (!allowed("viewer")) return;
    if (!definition && !tag) return;
    this.isAsking = true;
    await this.trying(async () => {
      const asked = definition
        ? api("definitions/explain", {
            method: "POST",
            body: { definition, node: this.name, namespaces: this.prefixes(tag) },
          })
        : api(`tags/${segment(tag ?? "")}/explain?node=${segment(this.name)}`);
      const answer = await asked;
      // Somebody has asked something else meanwhile.
      if (query !== this.query) return;
      this.answer = answer;
      this.marks = this.document
        ? marked(this.document, hits(this.answer.explanation), this.answer.namespaces)
        : new Set();
    });
    if (query === this.query) this.isAsking = false;
  }

  /** @param {string | null} name */
  prefixes(name) {
    const tag = this.all.find((found) => found.name === name);
    return tag?.pending_namespaces ?? tag?.namespaces ?? {};
  }

  /** @param {Record<string, string>} query */
  ask(query) {
    go(`/nodes/${segment(this.name)}?${new URLSearchParams(query)}`, { replace: true });
  }

  /** @param {Map<string, unknown>} changed */
  updated(changed) {
    if (changed.get("query") !== undefined && this.node !== null) {
      this.answer = null;
      this.marks = new Set();
      void this.explain();
    }
  }

  render() {
    if (this.node === null)
      return this.problem ? this.none("/nodes/", "All nodes") : html`<p class="quiet">Loading ...</p>`;
    const { hostname, system_id: id, cluster, kind, updated_at: at, probes } = this.node;
    return html`<div class="head">
        <div>
          <h1 title=${hostname || id}>${hostname || id}</h1>
          <p class="line small">
            <span class="quiet">${id}</span><span class="badge">${cluster}</span><span class="badge">${kind}</span>
            <span class="quiet">changed ${time(at)}</span
            >${probes.map((/** @type {any} */ probe) => html`<span class="quiet">${probe.probe} ${Math.ceil(probe.size / 1000)} kB, ${time(probe.uploaded_at)}</span>`)}
          </p>
        </div>
        ${allowed("operator") ? html`<button aria-pressed=${this.isPinned} @click=${this.togglePin}>${this.isPinned ? "Pinned" : "Pin it to the editor"}</button>` : nothing}
      </div>
      ${this.shownProblem()}
      <div class="editor">
        <section class="stack" aria-label="Hardware">
          <tm-tree .document=${this.document} .isLoading=${!this.isRead} .marks=${this.marks}></tm-tree>
        </section>
        <section class="stack" aria-label="Tags of the node">
          ${this.carried()}${allowed("viewer") ? this.reason() : nothing}
        </section>
      </div>`;
  }

  carried() {
    const { definitions, pending, evaluated_at: at } = this.node.freshness;
    return html`<div class="card stack">
      <div class="line spread">
        <h2>${several(this.tags.length, "tag")}</h2>
        ${
          definitions
            ? html`<span class="small">
                ${at ? html`true ${time(at)}` : "not evaluated yet"}
                <span class="quiet">${count(definitions - pending)} of ${several(definitions, "definition")}</span>
              </span>`
            : nothing
        }
      </div>
      ${
        this.tags.length
          ? html`<p class="line">
              ${this.tags.map((name) => html`<a class="badge accent" href="/nodes/${segment(this.name)}?tag=${segment(name)}">${name}</a>`)}
            </p>`
          : html`<p class="quiet">
              It carries none${allowed("viewer") ? ": below, a tag's definition says why it is out" : ""}.
            </p>`
      }
    </div>`;
  }

  reason() {
    const definition = this.query.get("definition");
    const tag = this.query.get("tag");
    return html`<div class="card stack">
      <h2>Why in, why out</h2>
      <label for="tag">By a tag</label>
      <select
        id="tag"
        @change=${(/** @type {any} */ event) => event.target.value && this.ask({ tag: event.target.value })}
      >
        <option value="">Choose a tag</option>
        ${this.all.filter((found) => found.kind === "automatic").map((found) => html`<option ?selected=${found.name === tag} value=${found.name}>${found.name}${this.tags.includes(found.name) ? "" : ", out"}</option>`)}
      </select>
      <form
        class="stack"
        @submit=${(/** @type {any} */ event) => {
          event.preventDefault();
          this.ask({ definition: event.target.elements.definition.value, ...(tag ? { tag } : {}) });
        }}
      >
        <label for="definition">By any expression</label>
        <div class="line">
          <input
            id="definition"
            name="definition"
            class="code grow"
            required
            spellcheck="false"
            autocomplete="off"
            .value=${definition ?? ""}
            placeholder="//node[@class='display']"
          /><button>Explain</button>
        </div>
      </form>
      ${
        this.isAsking
          ? html`<p class="quiet">Asking ...</p>`
          : this.answer
            ? html`<p>${highlighted(this.answer.definition)}</p>
                ${why(this.answer)}`
            : nothing
      }
      ${tag ? html`<p><a href="/tags/${segment(tag)}">To the tag ${tag}</a></p>` : nothing}
    </div>`;
  }
}

customElements.define("tm-node", NodePage);
