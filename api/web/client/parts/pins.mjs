// A test bench: the machines that are pinned, each in or out as a definition is typed, and why.
import { html, nothing } from "../vendor/lit.mjs";
import { api, segment } from "../base/http.mjs";
import { Page } from "../base/page.mjs";
import { MAX_PINS, pin, pinned, pins, unpin } from "../base/pins.mjs";
import { why } from "./why.mjs";

class Pins extends Page {
  static properties = {
    ...Page.properties,
    preview: { attribute: false },
    version: { type: Number },
    names: { state: true },
    verdicts: { state: true },
    opened: { state: true },
    answer: { state: true },
    said: { state: true },
  };

  constructor() {
    super();
    /** @type {import("../base/preview.mjs").Preview | null} */
    this.preview = null;
    this.version = 0;
    this.names = pinned();
    /** By system_id. @type {Map<string, any>} */
    this.verdicts = new Map();
    /** What the verdicts are of: a preview, and how far it was. */
    this.of = "";
    this.opened = "";
    /** @type {any} */
    this.answer = null;
    this.said = "";
    this.heard = () => {
      this.names = pinned();
      this.of = "";
    };
  }

  connectedCallback() {
    super.connectedCallback();
    pins.addEventListener("change", this.heard);
    this.endings.add(() => pins.removeEventListener("change", this.heard));
  }

  updated() {
    const found = this.preview?.found;
    if (!found || found.node_count === null || this.names.length === 0) return;
    const of = `${found.uuid} ${found.state} ${found.evaluated.partitions}`;
    if (of === this.of) return;
    if (!this.of.startsWith(found.uuid)) this.close();
    this.of = of;
    void this.trying(() => this.look(found.uuid, of));
  }

  /** @param {string} uuid @param {string} of */
  async look(uuid, of) {
    const query = new URLSearchParams(this.names.map((name) => ["node", name]));
    const { results } = await api(`previews/${uuid}/verdicts?${query}`);
    if (this.of === of)
      this.verdicts = new Map(results.map((/** @type {any} */ verdict) => [verdict.system_id, verdict]));
  }

  close() {
    this.opened = "";
    this.answer = null;
  }

  /** @param {string} name */
  toggle(name) {
    const isOpen = this.opened === name;
    this.close();
    const asked = this.preview?.asked;
    if (isOpen || !asked) return;
    this.opened = name;
    void this.trying(async () => {
      const { definition, namespaces } = asked;
      const answer = await api("definitions/explain", {
        method: "POST",
        body: { definition, namespaces, node: name },
      });
      if (this.opened === name) this.answer = answer;
    });
  }

  /** @param {SubmitEvent} event */
  add(event) {
    event.preventDefault();
    const form = /** @type {any} */ (event.target);
    const name = form.elements.pinned.value.trim();
    void this.trying(async () => {
      const { system_id: id } = await api(`nodes/${segment(name)}`);
      this.said = pin(id) ? "" : `At most ${MAX_PINS} machines are pinned: let one go first.`;
      form.reset();
    });
  }

  render() {
    const isOld = this.preview?.found === null;
    return html`<section class="card stack" aria-labelledby="pinned-title">
      <h2 id="pinned-title">Pinned machines</h2>
      ${this.shownProblem()} ${this.said ? html`<p class="notice" role="status">${this.said}</p>` : nothing}
      ${
        this.names.length
          ? html`<ul class="plainlist pins ${isOld ? "old" : ""}">
              ${this.names.map((name) => this.machine(name))}
            </ul>`
          : html`<p class="quiet">
              Machines that you know stay here, each in or out as you type: pin them by their system_id, or on their
              pages.
            </p>`
      }
      <form class="line" @submit=${this.add}>
        <label for="pinned" class="out-of-sight">system_id</label
        ><input
          id="pinned"
          name="pinned"
          class="grow"
          required
          autocomplete="off"
          spellcheck="false"
          placeholder="system_id"
        /><button>Pin</button>
      </form>
    </section>`;
  }

  /** @param {string} name */
  machine(name) {
    const verdict = this.verdicts.get(name);
    const isKnown = verdict && verdict.member !== null;
    const isOpen = this.opened === name;
    return html`<li>
      <span class="badge ${isKnown ? (verdict.member ? "good" : "bad") : ""}"
        >${isKnown ? (verdict.member ? "in" : "out") : "?"}</span
      >
      <a class="grow cut" href="/nodes/${segment(name)}">${verdict?.hostname || name}</a>
      ${
        this.preview?.found
          ? html`<button
              class="small"
              aria-expanded=${isOpen ? "true" : "false"}
              aria-label="Why ${name}"
              @click=${() => this.toggle(name)}
            >
              Why
            </button>`
          : nothing
      }
      <button class="small plain" aria-label="Let ${name} go" @click=${() => unpin(name)}>&times;</button>
      ${isOpen && this.answer ? html`<div class="full-line">${why(this.answer)}</div>` : nothing}
    </li>`;
  }
}

customElements.define("tm-pins", Pins);
