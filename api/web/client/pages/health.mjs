// What is wrong, and what waits for what; and who works.
import { html, nothing } from "../vendor/lit.mjs";
import { all, segment } from "../base/http.mjs";
import { count, several, time } from "../base/format.mjs";
import { Overview } from "../base/overview.mjs";
import { allowed } from "../base/session.mjs";
import { highlighted } from "../base/xpath.mjs";
import { TONES } from "../parts/written.mjs";

class Health extends Overview {
  static properties = { ...Overview.properties, tags: { state: true } };

  constructor() {
    super();
    /** @type {any[] | null} */
    this.tags = null;
  }

  async load() {
    const [tags] = await Promise.all([all("tags/?limit=1000"), super.load()]);
    this.tags = tags;
  }

  /** Those with nodes that no worker takes.
   * @param {any[]} clusters */
  deserted(clusters) {
    const living = this.workers.filter((worker) => worker.alive);
    return clusters.filter(
      (cluster) =>
        cluster.node_count > 0 &&
        !living.some((worker) => worker.clusters === null || worker.clusters.includes(cluster.name)),
    );
  }

  render() {
    if (this.tags === null || this.clusters === null) return this.loading("Health");
    const wrong = this.tags.filter((tag) => tag.state !== "ready");
    const deserted = allowed("operator") ? this.deserted(this.clusters) : [];
    const stale = this.partitions.filter((partition) => partition.stale > 0);
    const isWell = wrong.length + deserted.length + stale.length === 0;
    return html`<div class="head">
        <h1>Health</h1>
        <span class="badge ${isWell ? "good" : "warn"}" role="status"
          >${isWell ? "all is well" : "something waits"}</span
        >
      </div>
      ${this.shownProblem()}
      <div class="cards">
        <section class="card stack" aria-labelledby="tags-said">
          <h2 id="tags-said">Tags</h2>
          <p>
            <span class="big">${count(this.tags.length - wrong.length)}</span> of ${several(this.tags.length, "tag")}
            ready
          </p>
          ${
            wrong.length
              ? html`<ul class="plainlist">
                  ${wrong.map((tag) => this.tag(tag))}
                </ul>`
              : html`<p class="quiet">Every tag is true everywhere.</p>`
          }
        </section>
        ${allowed("operator") ? html`${this.clustered(this.clusters, deserted, stale)}${this.working()}` : html`<section class="card"><p class="quiet">Workers and partitions are shown to operators.</p></section>`}
      </div>`;
  }

  /** @param {any} tag */
  tag(tag) {
    return html`<li>
      <a href="/tags/${segment(tag.name)}">${tag.name}</a><span class="badge ${TONES[tag.state]}">${tag.state}</span>
      ${tag.failure ? html`<span class="small">${tag.failure}</span>` : tag.waiting_for.map((/** @type {any} */ wait) => html`<span class="small quiet">${wait.message}</span>`)}
      ${tag.pending_definition ? html`<span class="small">${highlighted(tag.pending_definition)}</span>` : nothing}
    </li>`;
  }

  /** @param {any[]} clusters @param {any[]} deserted @param {any[]} stale */
  clustered(clusters, deserted, stale) {
    return html`<section class="card stack" aria-labelledby="clusters-said">
      <h2 id="clusters-said">Clusters</h2>
      <p>
        <span class="big">${count(clusters.length - deserted.length)}</span> of ${several(clusters.length, "cluster")}
        with workers
      </p>
      ${
        deserted.length
          ? html`<ul class="plainlist">
              ${deserted.map(
                (cluster) =>
                  html`<li>
                    <strong>${cluster.name}</strong><span class="badge bad">no worker</span>
                    <span class="small quiet"
                      >${several(cluster.node_count, "node")} stay as they were: start a worker with a token for it
                      (manage.py worker_token NAME --cluster ${cluster.name})</span
                    >
                  </li>`,
              )}
            </ul>`
          : nothing
      }
      <p>
        ${stale.length ? html`${several(stale.length, "partition")} of ${count(this.partitions.length)} behind` : html`<span class="quiet">${several(this.partitions.length, "partition")}, all up to date</span>`}
      </p>
      ${
        stale.length
          ? html`<ul class="plainlist">
              ${stale.slice(0, 20).map((one) => html`<li>${one.cluster} ${one.number}<span class="small quiet">${several(one.stale, "definition")} to evaluate on ${several(one.node_count, "node")}</span></li>`)}
            </ul>`
          : nothing
      }
    </section>`;
  }

  working() {
    return html`<section class="card stack" aria-labelledby="workers-said">
      <h2 id="workers-said">Workers</h2>
      <p><span class="big">${count(this.workers.filter((worker) => worker.alive).length)}</span> alive</p>
      ${
        this.workers.length
          ? html`<ul class="plainlist">
              ${this.workers.map(
                (worker) =>
                  html`<li>
                    <strong>${worker.name}</strong
                    ><span class="badge ${worker.alive ? "good" : "bad"}">${worker.alive ? "alive" : "gone"}</span>
                    <span class="small quiet"
                      >${worker.evaluator}, ${worker.clusters === null ? "all clusters" : worker.clusters.join(", ")},
                      heard of ${time(worker.last_heartbeat)}</span
                    >
                  </li>`,
              )}
            </ul>`
          : html`<p class="quiet">
              None has ever come: manage.py worker_token makes a token, docs/worker.md says how to start one.
            </p>`
      }
    </section>`;
  }
}

customElements.define("tm-health", Health);
