// What the view has asked the API for, as curl commands.
import { html } from "../vendor/lit.mjs";
import { commands } from "../base/asked.mjs";
import { Part } from "../base/page.mjs";

class Curl extends Part {
  static properties = { lines: { attribute: false }, copied: { state: true } };

  constructor() {
    super();
    /** @type {string[]} */
    this.lines = [];
    this.copied = -1;
  }

  firstUpdated() {
    const dialog = /** @type {any} */ (this.querySelector("dialog"));
    dialog.addEventListener("close", () => this.remove());
    dialog.showModal();
  }

  /** @param {number} index */
  async copy(index) {
    await navigator.clipboard?.writeText(this.lines[index] ?? "");
    this.copied = index;
  }

  render() {
    return html`<dialog class="wide" aria-labelledby="as-curl">
      <form method="dialog" class="stack">
        <h2 id="as-curl">This view as curl</h2>
        <p>
          With a token of yours in <code>TAGMILL_TOKEN</code>: make one at
          <a href="/account" @click=${this.close}>your account</a>.
        </p>
        ${
          this.lines.length
            ? html`<ul class="plainlist">
                ${this.lines.map(
                  (line, index) =>
                    html`<li class="command">
                      <pre tabindex="0">${line}</pre>
                      <button type="button" class="small" @click=${() => this.copy(index)}>
                        ${this.copied === index ? "Copied" : "Copy"}
                      </button>
                    </li>`,
                )}
              </ul>`
            : html`<p class="quiet">It has asked nothing yet.</p>`
        }
        <div class="line"><button value="close" autofocus>Close</button></div>
      </form>
    </dialog>`;
  }

  close() {
    /** @type {any} */ (this.querySelector("dialog")).close();
  }
}

customElements.define("tm-curl", Curl);

export function showCommands() {
  const made = new Curl();
  made.lines = commands();
  document.body.append(made);
}
