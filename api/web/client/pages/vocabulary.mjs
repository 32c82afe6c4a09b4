// What the fleet contains, to click together into an expression: elements, their attributes, values.
import { html, nothing } from "../vendor/lit.mjs";
import { api } from "../base/http.mjs";
import { count, percent } from "../base/format.mjs";
import { Page } from "../base/page.mjs";
import { allowed } from "../base/session.mjs";
import { styled } from "../base/styled.mjs";
import { highlighted, literal } from "../base/xpath.mjs";

const MOST = 200;
const TYPING_MS = 120;
/** The questions that are asked most, of inventories by lshw. @type {[string, string][]} */
const PLACES = [
  ["node/@class", "Classes"],
  ["vendor/text()", "Vendors"],
  ["product/text()", "Products"],
  ["capability/@id", "Capabilities"],
  ["driver/text()", "Drivers"],
  ["", "Elements"],
];

class Vocabulary extends Page {
  static properties = {
    ...Page.properties,
    under: { state: true },
    sought: { state: true },
    found: { state: true },
    parts: { state: true },
    joint: { state: true },
  };

  constructor() {
    super();
    this.under = "node/@class";
    this.sought = "";
    /** @type {any} */
    this.found = null;
    this.timer = 0;
    /** The expressions that are clicked together, and what stands between them. @type {string[]} */
    this.parts = [];
    this.joint = "and";
  }

  connectedCallback() {
    super.connectedCallback();
    void this.trying(() => this.load());
  }

  async load() {
    const query = new URLSearchParams({ under: this.under, prefix: this.sought, limit: String(MOST) });
    const asked = query.toString();
    const found = await api(`vocabulary?${asked}`);
    if (this.under === query.get("under") && this.sought === query.get("prefix")) this.found = found;
  }

  /** @param {string} under */
  go(under) {
    this.under = under;
    this.sought = "";
    void this.trying(() => this.load());
  }

  /** @param {string} text */
  typed(text) {
    this.sought = text;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.trying(() => this.load()), TYPING_MS);
  }

  /** @param {any} word */
  definition(word) {
    const [element = "", rest = ""] = this.under.split("/");
    if (word.kind !== "value") return word.kind === "attribute" ? `//${element}[@${word.name}]` : `//${word.name}`;
    return `//${element}[${rest === "text()" ? "." : rest} = ${literal(word.name)}]`;
  }

  render() {
    const { found } = this;
    const isKnown = PLACES.some(([under]) => under === this.under);
    return html`<div class="head">
        <h1>Vocabulary</h1>
        ${found ? html`<span class="quiet">learnt from ${found.documents === null ? "no" : count(found.documents)} documents</span>` : nothing}
      </div>
      ${this.shownProblem()}
      <div class="line tools">
        <div class="choices" role="group" aria-label="Show">
          ${PLACES.map(([under, title]) => html`<button aria-pressed=${under === this.under} @click=${() => this.go(under)}>${title}</button>`)}
        </div>
        <input
          class="grow"
          type="search"
          aria-label="Beginning of a word"
          placeholder="Beginning of a word"
          .value=${this.sought}
          @input=${(/** @type {any} */ event) => this.typed(event.target.value)}
        />
      </div>
      ${this.parts.length ? this.together() : nothing}
      ${
        isKnown
          ? nothing
          : html`<p class="line">
              <button class="small" @click=${() => this.go("")}>All elements</button
              ><span>${this.under.includes("/") ? "values of" : "inside of"} <code>${this.under}</code></span>
            </p>`
      }
      ${found === null ? html`<p class="quiet">Loading ...</p>` : this.words()}`;
  }

  together() {
    const definition = this.parts.join(`\n${this.joint} `);
    return html`<section class="card stack" aria-labelledby="together">
      <div class="line spread">
        <h2 id="together">Clicked together</h2>
        <div class="choices" role="group" aria-label="A machine has">
          ${[
            ["and", "all of these"],
            ["or", "any of these"],
          ].map(
            ([joint, title]) =>
              html`<button aria-pressed=${joint === this.joint} @click=${() => (this.joint = joint ?? "and")}>
                ${title}
              </button>`,
          )}
        </div>
      </div>
      <ul class="plainlist">
        ${this.parts.map(
          (part) =>
            html`<li>
              <span class="grow">${highlighted(part)}</span
              ><button class="small plain" aria-label="Without ${part}" @click=${() => this.pick(part)}>&times;</button>
            </li>`,
        )}
      </ul>
      <p>
        <a class="button primary" href="/new?${new URLSearchParams({ definition })}"
          >Make a tag of ${this.parts.length === 1 ? "this" : "these"}</a
        >
      </p>
    </section>`;
  }

  /** Adds an expression, or takes it out again. @param {string} part */
  pick(part) {
    const isIn = this.parts.includes(part);
    this.parts = isIn ? this.parts.filter((found) => found !== part) : [...this.parts, part];
  }

  words() {
    const { results, truncated, complete, documents } = this.found;
    if (documents === null)
      return html`<p class="card empty">
        The fleet's words are not learnt yet: workers do that when they have nothing else to do.
      </p>`;
    return html`${
      results.length
        ? html`<ul class="card plainlist words">
            ${results.map((/** @type {any} */ word) => this.word(word, documents))}
          </ul>`
        : html`<p class="card empty">No word begins so.</p>`
    }
    ${truncated ? html`<p class="quiet small">There are more: type how they begin.</p>` : complete ? nothing : html`<p class="quiet small">Values that are too many or too long are not listed.</p>`}`;
  }

  /** @param {any} word @param {number} documents */
  word(word, documents) {
    const deeper = word.kind === "attribute" ? `${this.under.split("/")[0]}/@${word.name}` : word.name;
    const shown = word.kind === "attribute" ? `@${word.name}` : word.name;
    const definition = this.definition(word);
    return html`<li>
      <span class="grow cut"
        >${word.kind === "value" ? word.name : html`<button class="plain small" @click=${() => this.go(deeper)}>${shown}</button>`}
        ${word.kind === "element" ? html`<button class="plain small quiet" @click=${() => this.go(`${word.name}/text()`)} aria-label="Texts of ${word.name}">texts</button>` : nothing}</span
      >
      ${
        word.documents === null
          ? nothing
          : html`<span class="number small"
                >${count(word.documents)}
                <span class="quiet">${percent(Math.min(word.documents, documents), documents)}</span></span
              >
              <span class="bar" aria-hidden="true"
                ><span ${styled({ width: `${(100 * Math.min(word.documents, documents)) / documents}%` })}></span
              ></span>`
      }
      ${
        allowed("operator")
          ? html`<button
                class="small pick"
                aria-pressed=${this.parts.includes(definition)}
                aria-label="Add ${definition}"
                @click=${() => this.pick(definition)}
              >
                ${this.parts.includes(definition) ? "Added" : "Add"}</button
              ><a class="small" href="/new?${new URLSearchParams({ definition })}" title=${definition}
                >${highlighted(definition)}</a
              >`
          : html`<span class="small">${highlighted(definition)}</span>`
      }
    </li>`;
  }
}

customElements.define("tm-vocabulary", Vocabulary);
