// A tag, new or there already: its definition, what that would match, and saving it.
import { html, nothing } from "../vendor/lit.mjs";
import { areSame, drop, EMPTY, keep, kept, said } from "../base/drafts.mjs";
import { api, Problem, segment, tagged } from "../base/http.mjs";
import { count, several } from "../base/format.mjs";
import { Page } from "../base/page.mjs";
import { Preview } from "../base/preview.mjs";
import { go } from "../base/route.mjs";
import { allowed } from "../base/session.mjs";
import { ask } from "../parts/ask.mjs";
import "../parts/change.mjs";
import "../parts/code.mjs";
import "../parts/history.mjs";
import "../parts/pins.mjs";
import { collision, writer } from "../parts/collision.mjs";
import { prefixes, status, warnings } from "../parts/written.mjs";

// Saving what takes the tag from more than this share of its nodes is asked about.
const MAX_REMOVED = 0.1;
const STUCK = new Set(["no_worker", "postponed", "failure"]);

class Editor extends Page {
  static properties = {
    ...Page.properties,
    tag: {},
    query: { attribute: false },
    row: { state: true },
    draft: { state: true },
    findings: { state: true },
    version: { state: true },
    said: { state: true },
    isRestored: { state: true },
    isSaving: { state: true },
    theirs: { state: true },
  };

  constructor() {
    super();
    this.tag = "";
    this.query = new URLSearchParams();
    /** The tag as the server has it. @type {any} */
    this.row = null;
    /** @type {import("../base/drafts.mjs").Draft} */
    this.draft = EMPTY;
    /** What the tag said when the typing began, and its entity tag then.
     * @type {import("../base/drafts.mjs").Draft} */
    this.base = EMPTY;
    this.etag = "";
    /** What somebody else has made of it since then, and who. @type {import("../parts/collision.mjs").Theirs | null} */
    this.theirs = null;
    /** @type {import("../parts/code.mjs").Finding[]} */
    this.findings = [];
    this.preview = new Preview();
    this.version = 0;
    this.said = "";
    this.isRestored = false;
    this.isSaving = false;
  }

  connectedCallback() {
    super.connectedCallback();
    const heard = () => this.heard();
    this.preview.addEventListener("change", heard);
    this.endings.add(() => {
      this.preview.removeEventListener("change", heard);
      this.preview.stop();
    });
    void this.trying(() => this.open());
  }

  async open() {
    this.draft = { ...this.draft, definition: this.query.get("definition") ?? "" };
    if (this.tag) this.take(await tagged(this.address()));
    const before = allowed("operator") && !this.query.has("definition") ? kept(this.tag) : null;
    if (before !== null) {
      const { base = this.base, etag = this.etag, ...draft } = before;
      this.draft = draft;
      this.isRestored = this.isChanged();
      if (this.isRestored && !areSame(base, this.base)) {
        await this.meet(this.base, this.etag);
        [this.base, this.etag] = [base, etag];
      }
    }
    this.show();
    this.typed({ now: true });
    if (this.tag)
      this.watch(() => this.look(), {
        kinds: ["tag", "worker"],
        isMeant: ({ tags }) => (tags ? tags.includes(this.tag) : this.row?.state === "building"),
      });
  }

  address() {
    return `tags/${segment(this.tag)}`;
  }

  /** The tag's own state goes on; what is typed stays. */
  async look() {
    const [row, etag] = await tagged(this.address());
    const wasPublished = this.row.definition;
    const wasChanged = this.isChanged();
    const now = said(row);
    this.row = row;
    if (areSame(now, this.base)) {
      this.etag = etag;
      this.theirs = null;
    } else if (!wasChanged || areSame(now, this.draft)) {
      this.take([row, etag]);
      this.show();
      return this.typed({ now: true });
    } else if (this.theirs?.etag !== etag) await this.meet(now, etag);
    // What it is compared with is another one now.
    if (row.definition !== wasPublished) this.typed({ now: true });
  }

  /** Somebody else has saved the tag while this one is typed.
   * @param {import("../base/drafts.mjs").Draft} says @param {string} etag */
  async meet(says, etag) {
    const { results } = await api(`${this.address()}/history?limit=10`);
    this.theirs = { says, etag, ...writer(results) };
  }

  /** The draft goes on from what they have saved. */
  keepMine() {
    const { theirs } = this;
    if (theirs === null) return;
    this.base = theirs.says;
    this.etag = theirs.etag;
    this.theirs = null;
    this.write({});
  }

  /** @param {[any, string]} found The tag as the server has it, and its entity tag. */
  take([row, etag]) {
    this.row = row;
    this.base = this.draft = said(row);
    this.etag = etag;
    this.theirs = null;
  }

  isChanged() {
    return !areSame(this.draft, this.base);
  }

  /** The draft in the editor. */
  show() {
    void this.updateComplete.then(() => {
      const code = /** @type {any} */ (this.querySelector("tm-code"));
      if (code) code.value = this.draft.definition;
    });
  }

  /** @param {Partial<import("../base/drafts.mjs").Draft>} change */
  write(change) {
    this.draft = { ...this.draft, ...change };
    this.said = "";
    if (this.isChanged()) keep(this.tag, { ...this.draft, base: this.base, etag: this.etag });
    else drop(this.tag);
    if ("definition" in change || "namespaces" in change) this.typed();
  }

  /** @param {{now?: boolean}} [how] */
  typed(how) {
    const { definition, namespaces } = this.draft;
    if (this.row?.definition === null && definition === "") return;
    this.preview.ask({ definition, namespaces, compare_to: this.row?.definition ? this.tag : null }, how);
  }

  heard() {
    this.mark(this.preview.findings);
    this.version += 1;
  }

  /** @param {import("../parts/code.mjs").Finding[]} findings */
  mark(findings) {
    if (JSON.stringify(findings) === JSON.stringify(this.findings)) return;
    this.findings = findings;
    const code = /** @type {any} */ (this.querySelector("tm-code"));
    if (code) code.findings = findings;
  }

  isComplete() {
    return this.preview.found !== null && this.preview.found.state === "complete";
  }

  /** Until the preview says what saving would do. */
  async previewed() {
    while (this.preview.isWaiting && !this.stuck().length) {
      await new Promise((done) => this.preview.addEventListener("change", done, { once: true }));
    }
  }

  /** @returns {any[]} */
  stuck() {
    return (this.preview.found?.waiting_for ?? []).filter((/** @type {any} */ wait) => STUCK.has(wait.reason));
  }

  async save() {
    if (this.isSaving || !allowed("operator") || (!this.isChanged() && this.row !== null)) return;
    this.isSaving = true;
    await this.trying(async () => {
      if (this.draft.definition.trim()) await this.previewed();
      if (!(await this.isMeant())) return;
      const { name, definition, comment, namespaces } = this.draft;
      const body = {
        comment,
        definition: definition.trim() ? definition : null,
        namespaces,
        ...(this.row === null ? { name: name.trim() } : {}),
      };
      const saved = await this.store(body);
      if (saved === null) return;
      drop(this.tag);
      this.isRestored = false;
      const [row] = saved;
      if (this.row === null) return go(`/tags/${segment(row.name)}`, { replace: true });
      this.take(saved);
      this.said =
        row.pending_definition === null
          ? `Published: ${several(row.node_count, "node")}.`
          : "Saved: it is published once it is evaluated everywhere.";
      this.typed({ now: true });
    });
    this.isSaving = false;
  }

  /** Null where somebody else has saved the tag since the typing began: the page says so then.
   * @param {any} body @returns {Promise<[any, string] | null>} */
  async store(body) {
    if (this.row === null) return tagged("tags/", { method: "POST", body });
    try {
      return await tagged(this.address(), { method: "PATCH", body, match: this.etag });
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 412) throw error;
      await this.look();
      return null;
    }
  }

  async isMeant() {
    const { found, problem, wrong } = this.preview;
    if (problem) throw problem;
    if (wrong) throw new Problem({ code: "invalid_definition", detail: wrong });
    const before = this.row?.node_count ?? 0;
    const stuck = this.stuck();
    if (stuck.length)
      return ask({
        title: "Save it unevaluated?",
        yes: "Save",
        text: `Nobody knows yet what it matches: ${stuck[0].message}. It is published when that is known.`,
      });
    if (found?.removed > MAX_REMOVED * before) {
      return ask({
        title: `${several(found.removed, "node")} of ${count(before)} lose the tag`,
        yes: `Take it from ${several(found.removed, "node")}`,
        isDangerous: true,
        text: `${this.tag} would have ${several(found.node_count, "node")}: ${count(found.added)} added, ${count(found.removed)} removed.`,
      });
    }
    return true;
  }

  async erase() {
    const isMeant = await ask({
      title: `Delete ${this.tag}?`,
      yes: "Delete",
      isDangerous: true,
      text: `${several(this.row.node_count, "node")} lose the tag. Its history is kept.`,
    });
    if (isMeant && (await this.trying(async () => (await api(this.address(), { method: "DELETE" }), true)))) {
      drop(this.tag);
      go("/");
    }
  }

  discard() {
    if (this.theirs !== null) [this.base, this.etag] = [this.theirs.says, this.theirs.etag];
    this.theirs = null;
    this.draft = this.base;
    drop(this.tag);
    this.isRestored = false;
    this.show();
    this.typed({ now: true });
  }

  render() {
    if (this.tag && this.row === null)
      return this.problem ? this.none("/", "All tags") : html`<p class="quiet">Loading ...</p>`;
    return html`<div class="head">
        <div>
          <h1 title=${this.tag}>${this.tag || "New tag"}</h1>
          ${this.row ? status(this.row) : nothing}
        </div>
        ${allowed("operator") ? this.buttons() : nothing}
      </div>
      ${this.shownProblem()}
      ${
        this.theirs
          ? collision(
              this.theirs,
              this.draft,
              () => this.keepMine(),
              () => this.discard(),
            )
          : nothing
      }
      <div class="editor ${this.row ? "tag-page" : ""}">
        <section class="stack" aria-label="Definition">${this.form()}</section>
        <div class="stack result-side">
          <section class="card stack result" aria-label="What it matches">${this.result()}</section>
          ${allowed("operator") && this.row?.kind !== "manual" ? html`<tm-pins .preview=${this.preview} .version=${this.version}></tm-pins>` : nothing}
        </div>
        ${this.row ? html`<tm-history tag=${this.tag} .total=${this.row.node_count}></tm-history>` : nothing}
      </div>`;
  }

  buttons() {
    const isChanged = this.row === null || this.isChanged();
    return html`<div class="line">
      ${this.row ? html`<button class="danger" @click=${this.erase}>Delete</button>` : nothing}
      ${this.row && isChanged ? html`<button @click=${this.discard}>Discard</button>` : nothing}
      <button class="primary" @click=${this.save} ?disabled=${!isChanged || this.isSaving}>
        ${this.isSaving ? "Saving ..." : "Save"}
      </button>
    </div>`;
  }

  form() {
    const isMine = allowed("operator");
    return html` ${this.isRestored ? html`<p class="notice small line spread" role="status">This is what you typed last, and did not save. <button @click=${this.discard}>Discard it</button></p>` : nothing}
      ${this.said ? html`<p class="badge good" role="status">${this.said}</p>` : nothing}
      ${
        this.tag
          ? nothing
          : html`<label for="name">Name</label
              ><input
                id="name"
                .value=${this.draft.name}
                maxlength="256"
                pattern="[A-Za-z0-9_-]+"
                autocomplete="off"
                spellcheck="false"
                placeholder="letters, digits, _ and -"
                @input=${(/** @type {any} */ event) => this.write({ name: event.target.value })}
              />`
      }
      ${
        this.row?.kind === "manual"
          ? nothing
          : html`<span class="label">Definition</span>
              <tm-code
                label="Definition"
                .isReadOnly=${!isMine}
                @typed=${(/** @type {any} */ event) => event.detail !== this.draft.definition && this.write({ definition: event.detail })}
                @save=${this.save}
              ></tm-code>
              ${warnings(this.findings, (rewrite) => {
                this.write({ definition: rewrite });
                this.show();
              })}${prefixes(this.draft.namespaces, isMine ? (namespaces) => this.write({ namespaces }) : null)}`
      }
      <label for="comment">Comment</label
      ><input
        id="comment"
        .value=${this.draft.comment}
        maxlength="10000"
        ?readonly=${!isMine}
        @input=${(/** @type {any} */ event) => this.write({ comment: event.target.value })}
      />`;
  }

  result() {
    if (this.row !== null && (!allowed("operator") || (this.row.kind === "manual" && !this.draft.definition))) {
      return html`<h2>${several(this.row.node_count, "node")}</h2>
        <tm-nodes
          source="${this.address()}/nodes"
          members="${this.address()}/members"
          .total=${this.row.node_count}
          query="?tag=${segment(this.tag)}"
          empty="No node carries it. ${this.row.kind === "manual" ? `Assign some: POST tags/${this.tag}/assign.` : "Its definition matches none."}"
        ></tm-nodes>`;
    }
    const query = new URLSearchParams({ definition: this.draft.definition, ...(this.tag ? { tag: this.tag } : {}) });
    return html`<tm-change
      .preview=${this.preview}
      .version=${this.version}
      tag=${this.row?.definition ? this.tag : ""}
      query="?${query}"
    ></tm-change>`;
  }
}

customElements.define("tm-editor", Editor);
