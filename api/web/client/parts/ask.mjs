// A question in a dialog: true when it is answered with yes.
import { html, nothing } from "../vendor/lit.mjs";
import { Part } from "../base/page.mjs";

class Ask extends Part {
  static properties = { asked: { attribute: false } };

  constructor() {
    super();
    /** @type {{title: string, text: string, yes: string, isDangerous?: boolean}} */
    this.asked = { title: "", text: "", yes: "" };
    /** @type {(answer: boolean) => void} */
    this.answered = () => {};
  }

  firstUpdated() {
    const dialog = /** @type {any} */ (this.querySelector("dialog"));
    dialog.addEventListener("close", () => {
      this.answered(dialog.returnValue === "yes");
      this.remove();
    });
    dialog.showModal();
  }

  render() {
    const { title, text, yes, isDangerous } = this.asked;
    return html`<dialog aria-labelledby="asked">
        <form method="dialog">
          <h2 id="asked">${title}</h2>
          <p>${text}</p>
          <div class="line">
            <button value="no" autofocus>Cancel</button
            ><button value="yes" class=${isDangerous ? "danger" : "primary"}>${yes}</button>
          </div>
        </form>
      </dialog>
      ${nothing}`;
  }
}

customElements.define("tm-ask", Ask);

/** @param {{title: string, text: string, yes: string, isDangerous?: boolean}} asked @returns {Promise<boolean>} */
export function ask(asked) {
  const made = new Ask();
  made.asked = asked;
  const answer = new Promise((done) => (made.answered = done));
  document.body.append(made);
  return answer;
}
