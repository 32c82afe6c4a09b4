// Questions that are asked of every fleet, to choose values in: what is written is there to learn from.
import { html, nothing } from "../vendor/lit.mjs";
import { api } from "../base/http.mjs";
import { Page } from "../base/page.mjs";
import { Preview } from "../base/preview.mjs";
import { RECIPES } from "../base/recipes.mjs";
import { allowed } from "../base/session.mjs";
import { highlighted } from "../base/xpath.mjs";
import "../parts/change.mjs";

const WORDS = 200;

class Recipes extends Page {
  static properties = {
    ...Page.properties,
    chosen: { state: true },
    values: { state: true },
    words: { state: true },
    version: { state: true },
  };

  constructor() {
    super();
    this.chosen = /** @type {import("../base/recipes.mjs").Recipe} */ (RECIPES[0]);
    /** @type {Record<string, string>} */
    this.values = {};
    /** What the fleet has, by place. @type {Record<string, any[]>} */
    this.words = {};
    this.preview = new Preview();
    this.version = 0;
  }

  connectedCallback() {
    super.connectedCallback();
    const heard = () => (this.version += 1);
    this.preview.addEventListener("change", heard);
    this.endings.add(() => {
      this.preview.removeEventListener("change", heard);
      this.preview.stop();
    });
    this.choose(this.chosen);
  }

  /** @param {import("../base/recipes.mjs").Recipe} recipe */
  choose(recipe) {
    this.chosen = recipe;
    this.values = Object.fromEntries(recipe.fields.map((field) => [field.key, field.start]));
    for (const { under } of recipe.fields) if (under) void this.trying(() => this.learn(under));
    this.ask();
  }

  /** @param {string} under */
  async learn(under) {
    if (this.words[under]) return;
    const { results } = await api(`vocabulary?${new URLSearchParams({ under, limit: String(WORDS) })}`);
    this.words = { ...this.words, [under]: results };
  }

  /** @param {string} key @param {string} value */
  set(key, value) {
    this.values = { ...this.values, [key]: value };
    this.ask();
  }

  ask() {
    this.preview.ask({ definition: this.chosen.write(this.values), namespaces: {}, compare_to: null });
  }

  render() {
    const definition = this.chosen.write(this.values);
    const query = new URLSearchParams({ definition });
    return html`<div class="head"><h1>Recipes</h1></div>
      ${this.shownProblem()}
      <div class="line choices wrapped" role="group" aria-label="Recipe">
        ${RECIPES.map(
          (recipe) =>
            html`<button aria-pressed=${recipe === this.chosen} @click=${() => this.choose(recipe)}>
              ${recipe.title}
            </button>`,
        )}
      </div>
      <div class="editor">
        <section class="card stack" aria-label=${this.chosen.title}>
          <p>${this.chosen.text}</p>
          ${this.chosen.fields.map((field) => this.field(field))}
          <h2>What it says</h2>
          <p class="written">${highlighted(definition)}</p>
          ${allowed("operator") ? html`<p><a class="button primary" href="/new?${query}">Make a tag of this</a></p>` : nothing}
        </section>
        <section class="card result" aria-label="What it matches">
          ${
            allowed("operator")
              ? html`<tm-change .preview=${this.preview} .version=${this.version} query="?${query}"></tm-change>`
              : html`<p class="quiet">What it matches is shown to operators.</p>`
          }
        </section>
      </div>`;
  }

  /** @param {import("../base/recipes.mjs").Field} field */
  field(field) {
    const value = this.values[field.key] ?? field.start;
    if (field.kind === "word") {
      const words = this.words[field.under ?? ""] ?? [];
      return html`<label for=${field.key}>${field.label}</label
        ><input
          id=${field.key}
          list="words-of-${field.key}"
          autocomplete="off"
          spellcheck="false"
          .value=${value}
          @input=${(/** @type {any} */ event) => this.set(field.key, event.target.value)}
        /><datalist id="words-of-${field.key}">
          ${words.map((word) => html`<option value=${word.name}></option>`)}
        </datalist>`;
    }
    const steps = field.steps ?? [];
    return html`<label for=${field.key}>${field.label} <output for=${field.key}>${value} ${field.unit}</output></label
      ><input
        id=${field.key}
        type="range"
        min="0"
        max=${steps.length - 1}
        step="1"
        .value=${String(steps.indexOf(Number(value)))}
        aria-valuetext="${value} ${field.unit}"
        @input=${(/** @type {any} */ event) => this.set(field.key, String(steps[Number(event.target.value)]))}
      />`;
  }
}

customElements.define("tm-recipes", Recipes);
