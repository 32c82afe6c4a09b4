// Two who change one tag: what the other one has saved beside what is typed here, and which to go on with.
import { html, nothing } from "../vendor/lit.mjs";
import { time } from "../base/format.mjs";
import { tokens } from "../base/xpath.mjs";

/** @typedef {import("../base/drafts.mjs").Draft} Draft */
/** @typedef {{says: Draft, etag: string, who: string, at: string | null}} Theirs */

const WRITTEN = ["definition", "pending_definition", "namespaces", "pending_namespaces", "comment"];

/** Who has written last what the tag says. @param {any[]} events The tag's history, the newest first. */
export function writer(events) {
  const found = events.find((event) => event.action !== "published" && WRITTEN.some((name) => name in event.changes));
  return { who: found?.actor || "Somebody", at: found?.at ?? null };
}

/** @param {Theirs} theirs @param {Draft} mine @param {() => void} keepMine @param {() => void} takeTheirs */
export function collision(theirs, mine, keepMine, takeTheirs) {
  const { says, who, at } = theirs;
  return html`<section class="card stack collision" role="alert" aria-labelledby="collision">
    <h2 id="collision">${who} has saved this tag while you typed${at ? html`, ${time(at)}` : nothing}</h2>
    <dl>
      <dt>Saved</dt>
      <dd>${apart(says.definition, mine.definition)}${about(says, mine)}</dd>
      <dt>Yours</dt>
      <dd>${apart(mine.definition, says.definition)}${about(mine, says)}</dd>
    </dl>
    <p class="small quiet">Nothing that you typed is lost. Going on with yours, saving replaces what is saved.</p>
    <div class="line">
      <button class="primary" @click=${keepMine}>Go on with mine</button
      ><button @click=${takeTheirs}>Take what is saved</button>
    </div>
  </section>`;
}

/** The rest of a draft, as far as it differs. @param {Draft} one @param {Draft} other */
function about(one, other) {
  const prefixes = (/** @type {Draft} */ found) => JSON.stringify(found.namespaces);
  return html`${one.comment === other.comment ? nothing : html`<p class="small">Comment: <mark>${one.comment || "none"}</mark></p>`}
  ${prefixes(one) === prefixes(other) ? nothing : html`<p class="small">Namespaces: <mark>${prefixes(one)}</mark></p>`}`;
}

/** A definition with what another one has not marked: all between the words that both begin and end with.
 * @param {string} text @param {string} other */
export function apart(text, other) {
  if (!text) return html`<span class="quiet">no definition</span>`;
  const words = tokens(text).map((token) => token.text);
  const others = tokens(other).map((token) => token.text);
  const least = Math.min(words.length, others.length);
  let start = 0;
  while (start < least && words[start] === others[start]) start += 1;
  let end = 0;
  while (end < least - start && words[words.length - 1 - end] === others[others.length - 1 - end]) end += 1;
  const part = (/** @type {number} */ from, /** @type {number} */ to) => words.slice(from, to).join("");
  const between = part(start, words.length - end);
  return html`<code class="xp" translate="no"
    >${part(0, start)}${between ? html`<mark>${between}</mark>` : nothing}${part(words.length - end, words.length)}</code
  >`;
}
