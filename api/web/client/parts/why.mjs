// Why a node is in or out: the explanation's parts, with what was found and what is missing.
import { html, nothing } from "../vendor/lit.mjs";
import { several } from "../base/format.mjs";
import { highlighted } from "../base/xpath.mjs";

/** The paths of all hits. @param {any} explanation @returns {string[]} */
export function hits(explanation) {
  if (!explanation) return [];
  return [...explanation.hits.map((/** @type {any} */ hit) => hit.path), ...explanation.operands.flatMap(hits)];
}

/** @param {any} answer What the API's explain says. */
export function why(answer) {
  const { verdict, stored, explanation } = answer;
  const isBehind = stored !== null && stored.member !== verdict;
  return html`<div class="stack" role="status">
    <p class="line">
      <span class="badge ${verdict ? "good" : "bad"}">${verdict ? "in" : "out"}</span>
      <span>${verdict ? "The node matches." : "The node does not match."}</span>
      ${isBehind ? html`<span class="badge warn">the last evaluation said ${stored.member ? "in" : "out"}, before a change</span>` : nothing}
    </p>
    ${
      explanation
        ? html`<ul class="why">
            ${part(explanation)}
          </ul>`
        : html`<p class="quiet">The node has no documents, and matches nothing.</p>`
    }
    ${answer.evaluator.name ? html`<p class="small quiet">Evaluated by ${answer.evaluator.name}: ${answer.evaluator.reason}.</p>` : nothing}
  </div>`;
}

/** @param {any} explained @returns {unknown} */
function part(explained) {
  const { verdict, text, total, missing, value, operands, type } = explained;
  return html`<li>
    <div class="line">
      <span class="badge ${verdict ? "good" : "bad"}" aria-label=${verdict ? "true" : "false"}
        >${verdict ? "✓" : "✗"}</span
      >
      <span class="grow">${highlighted(text)}</span
      ><span class="small quiet"
        >${total !== null ? several(total, "hit") : type === "boolean" ? nothing : html`= ${String(value)}`}</span
      >
    </div>
    ${missing ? html`<p class="small missing">${missing.sentence}</p>` : nothing}
    ${
      operands.length
        ? html`<ul>
            ${operands.map(part)}
          </ul>`
        : nothing
    }
  </li>`;
}
