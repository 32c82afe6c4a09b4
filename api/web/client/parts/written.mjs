// What stands around a definition: the tag's state, what is said about the text, its prefixes.
import { html, nothing } from "../vendor/lit.mjs";
import { count, several, time } from "../base/format.mjs";
import { allowed } from "../base/session.mjs";

/** @type {Record<string, string>} */
export const TONES = { ready: "good", building: "warn", failed: "bad" };

/** @param {any} tag */
export function status(tag) {
  const { state, failure, freshness, kind, updated_at: at, waiting_for: waits } = tag;
  const { evaluated_at: evaluated } = freshness;
  const fresh = `${count(freshness.partitions - freshness.pending)} of ${several(freshness.partitions, "partition")} up to date`;
  return html`<p class="line small">
      <span class="badge ${TONES[state]}">${state}</span><span class="badge">${kind}</span>
      ${kind === "automatic" ? html`<span class="quiet">${evaluated ? html`true ${time(evaluated)}, ` : nothing}${fresh}</span>` : nothing}
      <span class="quiet">changed ${time(at)}</span>
    </p>
    ${failure ? html`<p class="error small">${failure}</p>` : waits.length ? html`<p class="notice small">${waits[0].message}</p>` : nothing}`;
}

/** @param {import("./code.mjs").Finding[]} findings @param {(text: string) => void} rewrite */
export function warnings(findings, rewrite) {
  return html`<ul class="findings" aria-live="polite" aria-label="Warnings">
    ${findings.map(
      (found) =>
        html`<li class="line ${found.severity ?? "warning"}">
          <span class="grow">${found.message} <span class="small">column ${count(found.column)}</span></span>
          ${
            found.rewrite && allowed("operator")
              ? html`<button class="small" title=${found.rewrite} @click=${() => rewrite(found.rewrite ?? "")}>
                  Rewrite
                </button>`
              : nothing
          }
        </li>`,
    )}
  </ul>`;
}

/** @param {Record<string, string>} namespaces @param {((found: Record<string, string>) => void) | null} write Null: read alone. */
export function prefixes(namespaces, write) {
  const lines = Object.entries(namespaces)
    .map(([prefix, uri]) => `${prefix}=${uri}`)
    .join("\n");
  return html`<details ?open=${lines !== ""}>
    <summary class="small">Namespaces</summary>
    <textarea
      class="code"
      rows="2"
      aria-label="Namespaces: prefix=URI, one a line"
      placeholder="lldp=http://example.com/lldp"
      ?readonly=${write === null}
      .value=${lines}
      @change=${(/** @type {any} */ event) => write?.(pairs(event.target.value))}
    ></textarea>
  </details>`;
}

/** @param {string} text @returns {Record<string, string>} */
function pairs(text) {
  const found = text
    .split("\n")
    .map((line) => line.split("="))
    .filter(([prefix, ...rest]) => prefix?.trim() && rest.length);
  return Object.fromEntries(found.map(([prefix, ...rest]) => [prefix?.trim(), rest.join("=").trim()]));
}
