// Clusters and their partitions, coloured by what waits there, and who works on what.
import { html, nothing } from "../vendor/lit.mjs";
import { count, rate, several, time } from "../base/format.mjs";
import { all, segment } from "../base/http.mjs";
import { Overview } from "../base/overview.mjs";
import { allowed } from "../base/session.mjs";
import "../parts/hour.mjs";

class Fleet extends Overview {
  static properties = { ...Overview.properties, failed: { state: true } };

  constructor() {
    super();
    /** Tags whose definition could not be evaluated somewhere. @type {any[]} */
    this.failed = [];
  }

  async load() {
    const [failed] = await Promise.all([all("tags/?state=failed&limit=1000"), super.load()]);
    this.failed = failed;
  }

  render() {
    if (this.clusters === null) return this.loading("Fleet");
    const waiting = this.partitions.reduce((sum, one) => sum + one.stale, 0);
    return html`<div class="head">
        <h1>Fleet</h1>
        <span class="quiet" role="status"
          >${several(
            this.clusters.reduce((sum, one) => sum + one.node_count, 0),
            "node",
          )}
          in
          ${several(this.clusters.length, "cluster")}${allowed("operator") ? `, ${several(waiting, "evaluation")} waiting` : ""}</span
        >
      </div>
      ${this.shownProblem()}
      ${this.clusters.length ? nothing : html`<p class="card empty">No clusters yet: an administrator makes one with POST clusters/, or at /admin/.</p>`}
      <div class="cards">${this.clusters.map((cluster) => this.cluster(cluster))}</div>
      ${
        allowed("operator")
          ? html`<h2>The last hour</h2>
              <tm-hour></tm-hour>
              ${this.failures()}
              <h2>Workers</h2>
              ${this.workers.length ? this.table() : html`<p class="card empty">None has ever come: manage.py worker_token makes a token for one.</p>`}`
          : nothing
      }`;
  }

  failures() {
    return html`<h2>What failed</h2>
      ${
        this.failed.length
          ? html`<ul class="card plainlist">
              ${this.failed.map(
                (tag) =>
                  html`<li>
                    <a href="/tags/${segment(tag.name)}">${tag.name}</a><span class="small grow">${tag.failure}</span>
                  </li>`,
              )}
            </ul>`
          : html`<p class="card quiet">No definition fails anywhere.</p>`
      }`;
  }

  /** @param {any} cluster */
  cluster(cluster) {
    const held = new Set(
      this.workers.flatMap((worker) => worker.leases.map((/** @type {any} */ lease) => lease.partition)),
    );
    const parts = this.partitions.filter((one) => one.cluster === cluster.name);
    const stale = parts.filter((one) => one.stale > 0).length;
    return html`<section class="card stack">
      <div class="line spread">
        <h2 class="cut" title=${cluster.name}>${cluster.name}</h2>
        <span class="small quiet"
          >${several(cluster.node_count, "node")}, ${several(cluster.partition_count, "partition")}</span
        >
      </div>
      ${
        parts.length
          ? html`<ul class="grid" aria-label="Partitions of ${cluster.name}">
                ${parts.map(
                  (one) =>
                    html`<li
                      class=${held.has(one.id) ? "held" : one.stale ? "stale" : ""}
                      title="partition ${one.number}: ${several(one.node_count, "node")}, ${one.stale ? `${several(one.stale, "definition")} to evaluate` : "up to date"}${held.has(one.id) ? ", a worker is at it" : ""}"
                    >
                      <span class="out-of-sight"
                        >${one.number}: ${one.stale ? `${one.stale} waiting` : "up to date"}</span
                      >
                    </li>`,
                )}
              </ul>
              <p class="small quiet">
                ${stale ? html`${count(stale)} of ${count(parts.length)} behind` : "all up to date"}
              </p>`
          : nothing
      }
    </section>`;
  }

  table() {
    return html`<div class="card scrolled" tabindex="0" role="region" aria-label="Workers">
      <table class="full">
        <thead>
          <tr>
            <th scope="col">Worker</th>
            <th scope="col">State</th>
            <th scope="col">Evaluator</th>
            <th scope="col">Clusters</th>
            <th scope="col">Holds</th>
            <th scope="col">Documents a second</th>
            <th scope="col">Partitions a second</th>
            <th scope="col">Heard of</th>
            <th scope="col">Where</th>
          </tr>
        </thead>
        <tbody>
          ${this.workers.map(
            (worker) =>
              html`<tr>
                <th scope="row">${worker.name}</th>
                <td><span class="badge ${worker.alive ? "good" : "bad"}">${worker.alive ? "alive" : "gone"}</span></td>
                <td>${worker.evaluator}</td>
                <td>${worker.clusters === null ? "all" : worker.clusters.join(", ")}</td>
                <td class="number">${count(worker.leases.length)}</td>
                ${["documents", "partitions"].map((what) => html`<td class="number">${worker.alive ? rate(worker.throughput?.[`${what}_per_second`]) : "-"}</td>`)}
                <td>${time(worker.last_heartbeat)}</td>
                <td class="quiet">${worker.host} ${worker.pid}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>`;
  }
}

customElements.define("tm-fleet", Fleet);
