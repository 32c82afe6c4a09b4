// One rebuild as it goes on: a bar that moves, nodes a second, time left, cancel.
import { html, nothing } from "../vendor/lit.mjs";
import { api } from "../base/http.mjs";
import { count, duration, percent, several } from "../base/format.mjs";
import { live } from "../base/live.mjs";
import { Page } from "../base/page.mjs";
import { allowed } from "../base/session.mjs";

const SAID = {
  running: "running",
  complete: "complete",
  failed: "failed",
  cancelled: "cancelled",
  superseded: "replaced by a newer definition",
};

export class Rebuild extends Page {
  static properties = { ...Page.properties, rebuild: { attribute: false }, progress: { state: true } };

  constructor() {
    super();
    /** @type {any} */
    this.rebuild = null;
    /** @type {any} */
    this.progress = null;
    this.isOver = false;
  }

  connectedCallback() {
    super.connectedCallback();
    const heard = (/** @type {any} */ { detail }) => {
      if (detail.rebuild !== this.rebuild.uuid) return;
      if (detail.state === "running") this.progress = detail;
      else void this.look();
    };
    const look = () => void this.look();
    live.addEventListener("rebuild", heard);
    live.addEventListener("missed", look);
    this.endings.add(() => {
      live.removeEventListener("rebuild", heard);
      live.removeEventListener("missed", look);
    });
    look();
  }

  /** How far it is, and whether it has ended. */
  async look() {
    const found = await this.trying(() => api(`rebuilds/${this.rebuild.uuid}`));
    if (found === undefined || this.isOver) return;
    const { state, progress, nodes_per_second, eta_seconds } = found;
    this.progress = { state, nodes_per_second, eta_seconds, ...progress };
    this.isOver = state !== "running";
    if (this.isOver) this.dispatchEvent(new Event("over"));
  }

  async cancel() {
    await this.trying(() => api(`rebuilds/${this.rebuild.uuid}/cancel`, { method: "POST" }));
  }

  render() {
    const { tags, tag_count: total = tags.length, requested_by: by } = this.rebuild;
    const found = this.progress ?? {
      state: this.rebuild.state,
      done: 0,
      total: 0,
      nodes_done: 0,
      nodes_total: 0,
      nodes_per_second: null,
      eta_seconds: null,
    };
    const names = total > 3 ? `${count(total)} tags` : tags.join(", ");
    const isRunning = found.state === "running";
    const left = [
      found.nodes_per_second ? `${count(found.nodes_per_second)} nodes/s` : "",
      found.eta_seconds !== null && isRunning ? `${duration(found.eta_seconds)} left` : "",
    ]
      .filter(Boolean)
      .join(", ");
    return html`<div class="stack rebuild">
      <div class="line spread">
        <span
          ><strong>${names}</strong>
          <span class="quiet small"
            >rebuild${by ? html` by ${by}` : nothing}, ${SAID[/** @type {keyof typeof SAID} */ (found.state)]}</span
          ></span
        >
        <span class="line small"
          ><span class="quiet number">${left}</span>
          ${isRunning && allowed("operator") ? html`<button @click=${this.cancel} aria-label="Cancel the rebuild of ${names}">Cancel</button>` : nothing}</span
        >
      </div>
      <progress max=${found.total || 1} .value=${found.done} aria-label="Rebuild of ${names}"></progress>
      <span class="small quiet"
        >${
          found.total
            ? html`${percent(found.done, found.total)} of ${several(found.total, "match").replace(/hs$/, "hes")},
              ${count(found.nodes_done)} of ${count(found.nodes_total)} nodes`
            : "Counting ..."
        }</span
      >
      ${this.shownProblem()}
    </div>`;
  }
}

customElements.define("tm-rebuild", Rebuild);
