// What is one's own: tokens for programs, and machines that are dropped here.
import { html, nothing } from "../vendor/lit.mjs";
import { all, api, segment } from "../base/http.mjs";
import { several, time } from "../base/format.mjs";
import { read } from "../base/lshw.mjs";
import { Page } from "../base/page.mjs";
import { allowed, session } from "../base/session.mjs";
import { ask } from "../parts/ask.mjs";

const DAYS = [1, 7, 30, 90, 365];
/** @type {Record<string, string>} */
const ROLES = {
  viewer: "a viewer may",
  uploader: "an uploader may",
  operator: "an operator may",
  admin: "an admin may",
};

class Account extends Page {
  static properties = {
    ...Page.properties,
    tokens: { state: true },
    made: { state: true },
    clusters: { state: true },
    cluster: { state: true },
    dropped: { state: true },
    isOver: { state: true },
  };

  constructor() {
    super();
    /** @type {any[] | null} */
    this.tokens = null;
    /** The token that was made now, which is shown once. @type {any} */
    this.made = null;
    /** @type {any[]} */
    this.clusters = [];
    this.cluster = "";
    /** @type {{system_id: string, file: string, said: string, isWrong: boolean}[]} */
    this.dropped = [];
    this.isOver = false;
  }

  connectedCallback() {
    super.connectedCallback();
    void this.trying(() => this.load());
  }

  async load() {
    if (allowed("operator")) this.clusters = await all("clusters/?limit=1000");
    this.cluster ||= this.clusters[0]?.name ?? "";
    this.tokens = await all("auth/tokens/?limit=1000");
  }

  /** @param {SubmitEvent} event */
  make(event) {
    event.preventDefault();
    const form = /** @type {any} */ (event.target);
    const { name, role, days } = form.elements;
    const body = { name: name.value, role: role.value, days: Number(days.value) };
    void this.trying(async () => {
      this.made = { ...(await api("auth/tokens/", { method: "POST", body })), name: body.name };
      form.reset();
      await this.load();
    });
  }

  /** @param {any} token */
  async revoke(token) {
    const isMeant = await ask({
      title: `Revoke ${token.name || token.key}?`,
      yes: "Revoke",
      isDangerous: true,
      text: "Programs that use it are refused from now on.",
    });
    if (!isMeant) return;
    await this.trying(async () => {
      await api(`auth/tokens/${segment(token.key)}`, { method: "DELETE" });
      await this.load();
    });
  }

  /** @param {Iterable<File>} files */
  async take(files) {
    for (const file of files) {
      const found = await read(file);
      const said = found.wrong || (await this.store(found));
      this.dropped = [
        { system_id: found.system_id, file: file.name, said, isWrong: said !== "stored" },
        ...this.dropped,
      ];
    }
  }

  /** A machine that is there gets the document. @param {import("../base/lshw.mjs").Dropped} found */
  async store(found) {
    const { system_id, hostname, xml } = found;
    const body = { system_id, hostname, cluster: this.cluster, probes: { lshw: xml } };
    try {
      await api("nodes/", { method: "POST", body });
    } catch (error) {
      if (/** @type {any} */ (error).status !== 409) return /** @type {Error} */ (error).message;
      return `There is a node ${system_id} already: rename the file, or upload to nodes/${system_id}/document.`;
    }
    return "stored";
  }

  render() {
    return html`<div class="head">
        <h1>Your account</h1>
        <span class="quiet">${session.user}, ${session.role}</span>
      </div>
      ${this.shownProblem()}
      <div class="editor">
        <section class="stack" aria-labelledby="own-tokens">
          <h2 id="own-tokens">Tokens</h2>
          ${this.making()} ${this.listed()}
        </section>
        ${allowed("operator") ? this.dropping() : nothing}
      </div>`;
  }

  making() {
    const roles = ["viewer", "uploader", "operator", "admin"].filter((role) =>
      role === "uploader" ? allowed("operator") : allowed(/** @type {any} */ (role)),
    );
    return html`${
        this.made
          ? html`<div class="card stack" role="status">
              <p>The token ${this.made.name} is shown this once: copy it now.</p>
              <pre class="code" tabindex="0">${this.made.token}</pre>
            </div>`
          : nothing
      }
      <form class="card stack" @submit=${this.make}>
        <label for="token-name">What it is for</label
        ><input id="token-name" name="name" maxlength="64" autocomplete="off" placeholder="nightly upload" />
        <div class="fields">
          <div class="stack">
            <label for="token-role">It may do what</label
            ><select id="token-role" name="role">
              ${roles.map((role) => html`<option value=${role}>${ROLES[role]}</option>`)}
            </select>
          </div>
          <div class="stack">
            <label for="token-days">It ends after</label
            ><select id="token-days" name="days">
              ${DAYS.map((days) => html`<option value=${days} ?selected=${days === 90}>${several(days, "day")}</option>`)}
            </select>
          </div>
        </div>
        <p><button class="primary">Make a token</button></p>
      </form>`;
  }

  listed() {
    if (this.tokens === null) return this.problem ? nothing : html`<p class="quiet">Loading ...</p>`;
    return this.tokens.length
      ? html`<ul class="card plainlist" aria-label="Your tokens">
          ${this.tokens.map(
            (token) =>
              html`<li>
                <strong class="cut">${token.name || (token.is_login ? "login" : "without a name")}</strong>
                <code class="small">${token.key.slice(0, 8)}...</code><span class="badge">${token.role}</span>
                <span class="small quiet grow"
                  >made ${time(token.created_at)},
                  ${token.last_used_at ? html`used ${time(token.last_used_at)}` : "never used"},
                  ${token.expires_at ? html`ends ${time(token.expires_at)}` : "never ends"}</span
                >
                <button
                  class="small danger"
                  @click=${() => this.revoke(token)}
                  aria-label="Revoke ${token.name || token.key}"
                >
                  Revoke
                </button>
              </li>`,
          )}
        </ul>`
      : html`<p class="card empty">You have no token. Programs need one to ask the API; you do not.</p>`;
  }

  dropping() {
    if (this.tokens === null) return nothing;
    if (!this.cluster)
      return html`<p class="card empty">
        No clusters yet: an administrator makes one with POST clusters/, or at /admin/.
      </p>`;
    return html`<section class="stack" aria-labelledby="dropping">
      <h2 id="dropping">Machines from files</h2>
      <div
        class="card stack drop ${this.isOver ? "over" : ""}"
        @dragover=${(/** @type {DragEvent} */ event) => {
          event.preventDefault();
          this.isOver = true;
        }}
        @dragleave=${() => (this.isOver = false)}
        @drop=${(/** @type {DragEvent} */ event) => {
          event.preventDefault();
          this.isOver = false;
          void this.take([...(event.dataTransfer?.files ?? [])]);
        }}
      >
        <p>Drop files of <code>lshw -xml</code> here: each becomes a node, with the file's name as its system_id.</p>
        <label for="drop-cluster">Cluster</label
        ><select id="drop-cluster" @change=${(/** @type {any} */ event) => (this.cluster = event.target.value)}>
          ${this.clusters.map((one) => html`<option ?selected=${one.name === this.cluster}>${one.name}</option>`)}
        </select>
        <label for="drop-files">or choose them</label
        ><input
          id="drop-files"
          type="file"
          multiple
          accept=".xml,.lshw,text/xml"
          @change=${(/** @type {any} */ event) => this.take([...event.target.files])}
        />
      </div>
      ${
        this.dropped.length
          ? html`<ul class="card plainlist" aria-label="Files" aria-live="polite">
              ${this.dropped.map(
                (one) =>
                  html`<li>
                    <span class="grow cut">${one.file}</span>
                    ${one.isWrong ? html`<span class="small missing">${one.said}</span>` : html`<a href="/nodes/${segment(one.system_id)}">${one.system_id}</a>`}
                  </li>`,
              )}
            </ul>`
          : nothing
      }
    </section>`;
  }
}

customElements.define("tm-account", Account);
