// What a preview says: how many nodes match, which come and go against what is published, and where.
import { html, nothing } from "../vendor/lit.mjs";
import { count, percent, several } from "../base/format.mjs";
import { Part } from "../base/page.mjs";
import { styled } from "../base/styled.mjs";
import "./nodes.mjs";

const LISTS = /** @type {const} */ ([
  ["members", "In"],
  ["added", "Added"],
  ["removed", "Removed"],
  ["out", "Out"],
]);

/** @type {Record<string, string>} */
const EMPTY = {
  members: "No node matches. Ask for less, or look at a machine under Out: its page says why it is out.",
  added: "No node gains the tag.",
  removed: "No node loses the tag.",
  out: "No node is out: all that are evaluated match.",
};

class Change extends Part {
  static properties = {
    preview: { attribute: false },
    tag: {},
    query: {},
    list: { state: true },
    version: { type: Number },
  };

  constructor() {
    super();
    /** @type {import("../base/preview.mjs").Preview | null} */
    this.preview = null;
    this.tag = "";
    this.query = "";
    this.list = "members";
    this.version = 0;
  }

  render() {
    const shown = this.preview?.found ?? this.preview?.last;
    if (!this.preview || !shown)
      return this.preview?.isWaiting
        ? html`<p class="quiet">Evaluating ...</p>`
        : html`<p class="quiet">What is typed is evaluated at once: here is what it would match.</p>`;
    const isOld = shown !== this.preview.found || this.preview.problem !== null || this.preview.wrong !== "";
    return html`<div class="stack ${isOld ? "old" : ""}">
      ${this.numbers(shown)}${this.waits(shown)}${this.clusters(shown)}${this.lists(shown, isOld)}
    </div>`;
  }

  /** @param {any} shown */
  numbers(shown) {
    const { node_count: found, total, evaluated, added, removed } = shown;
    return html`<div class="numbers" role="status">
      <p class="big">
        <strong class="number">${count(found)}</strong>
        <span class="quiet">of ${several(total, "node")}, ${percent(found ?? 0, total)}</span>
      </p>
      ${
        this.tag && added !== null
          ? added || removed
            ? html`<p class="line">
                <span class="badge good">+${count(added)}</span
                ><span class="badge ${removed ? "bad" : ""}">&minus;${count(removed)}</span>
                <span class="quiet small">against what is published</span>
              </p>`
            : html`<p class="quiet small">the same nodes as published</p>`
          : nothing
      }
      ${
        shown.state === "evaluating"
          ? html`<progress max=${evaluated.of || 1} .value=${evaluated.partitions} aria-label="Evaluated"></progress>
              <p class="quiet small">
                ${count(evaluated.partitions)} of ${several(evaluated.of, "partition")} evaluated
              </p>`
          : nothing
      }
      ${shown.state === "failed" ? html`<p class="error">${shown.failure}</p>` : nothing}
    </div>`;
  }

  /** @param {any} shown */
  waits(shown) {
    const waits = shown.waiting_for.filter(
      (/** @type {any} */ found) => !["evaluation", "worker"].includes(found.reason),
    );
    return waits.length
      ? html`<ul class="notice small">
          ${waits.map((/** @type {any} */ wait) => html`<li>${wait.message}</li>`)}
        </ul>`
      : nothing;
  }

  /** @param {any} shown */
  clusters(shown) {
    if (shown.clusters.length < 2 && !shown.added && !shown.removed) return nothing;
    const most = Math.max(
      1,
      ...shown.clusters.map((/** @type {any} */ one) => (one.node_count ?? 0) + (one.removed ?? 0)),
    );
    const hasChange = shown.added || shown.removed;
    return html`<table class="clusters">
      <caption class="out-of-sight">
        By cluster
      </caption>
      <thead class="out-of-sight">
        <tr>
          <th scope="col">Cluster</th>
          <th scope="col">Share</th>
          <th scope="col">Nodes</th>
          ${hasChange ? html`<th scope="col">Change</th>` : nothing}
        </tr>
      </thead>
      <tbody>
        ${shown.clusters.map(
          (/** @type {any} */ one) =>
            html`<tr>
              <th scope="row" class="cut" title=${one.name}>${one.name}</th>
              <td class="grow">
                <span class="bar parts" aria-hidden="true">
                  <span ${styled({ width: `${(100 * ((one.node_count ?? 0) - (one.added ?? 0))) / most}%` })}></span>
                  <span class="added" ${styled({ width: `${(100 * (one.added ?? 0)) / most}%` })}></span>
                  <span class="removed" ${styled({ width: `${(100 * (one.removed ?? 0)) / most}%` })}></span
                ></span>
              </td>
              <td class="number small">
                ${count(one.node_count)} <span class="quiet">${percent(one.node_count ?? 0, one.total)}</span>
              </td>
              ${
                hasChange
                  ? html`<td class="number small">
                      ${one.added ? html`<span class="plus">+${count(one.added)}</span>` : nothing}
                      ${one.removed ? html`<span class="minus">&minus;${count(one.removed)}</span>` : nothing}
                    </td>`
                  : nothing
              }
            </tr>`,
        )}
      </tbody>
    </table>`;
  }

  /** @param {any} shown @param {boolean} isOld */
  lists(shown, isOld) {
    /** @type {Record<string, number>} */
    const totals = {
      members: shown.node_count ?? 0,
      added: shown.added ?? 0,
      removed: shown.removed ?? 0,
      out: shown.evaluated.nodes - (shown.node_count ?? 0),
    };
    const there = LISTS.filter(([key]) => shown.compare_to || !["added", "removed"].includes(key));
    const list = there.some(([key]) => key === this.list) ? this.list : "members";
    return html`<div class="choices" role="group" aria-label="Nodes that are">
        ${there.map(
          ([key, title]) =>
            html` <button aria-pressed=${list === key} @click=${() => (this.list = key)}>
              ${title} <span class="small">${count(totals[key])}</span>
            </button>`,
        )}
      </div>
      ${
        isOld || shown.state === "evaluating"
          ? nothing
          : html`<tm-nodes
              source="previews/${shown.uuid}/nodes?change=${list}"
              members="previews/${shown.uuid}/members?change=${list}"
              .total=${totals[list] ?? 0}
              query=${this.query}
              empty=${EMPTY[list]}
              @gone=${() => this.preview?.again()}
            ></tm-nodes>`
      }`;
  }
}

customElements.define("tm-change", Change);
