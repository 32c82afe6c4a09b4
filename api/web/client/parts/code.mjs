// The editor of a definition: colours, brackets, completion, squiggles. It has a root of its own, in
// which CodeMirror adopts its style sheets: the policy would refuse style elements.
import { tokenAt, unit } from "../base/xpath.mjs";
import { completions } from "../base/complete.mjs";
import {
  autocompletion,
  bracketMatching,
  closeBrackets,
  closeBracketsKeymap,
  completionKeymap,
  defaultKeymap,
  drawSelection,
  EditorState,
  EditorView,
  HighlightStyle,
  history,
  historyKeymap,
  keymap,
  lintKeymap,
  placeholder,
  setDiagnostics,
  StreamLanguage,
  syntaxHighlighting,
  tags,
} from "../vendor/editor.mjs";

/** @typedef {{column: number, end_column: number, message: string, rewrite: string | null, severity?: "error" | "warning"}} Finding */

const NAMED = {
  name: "name",
  attribute: "attributeName",
  string: "string",
  number: "number",
  function: "keyword",
  operator: "operator",
  space: null,
  other: null,
};

const language = StreamLanguage.define({
  startState: () => ({ before: "" }),
  token(stream, state) {
    const token = tokenAt(stream.string, stream.pos, state.before);
    stream.pos += token.text.length;
    if (token.kind !== "space") state.before = token.text;
    return NAMED[token.kind];
  },
});

const colours = HighlightStyle.define([
  { tag: tags.name, color: "var(--code-name)" },
  { tag: tags.attributeName, color: "var(--code-attribute)" },
  { tag: tags.string, color: "var(--code-string)" },
  { tag: tags.number, color: "var(--code-number)" },
  { tag: tags.keyword, color: "var(--code-function)" },
  { tag: tags.operator, color: "var(--code-operator)" },
]);

const theme = EditorView.theme({
  "&": {
    backgroundColor: "var(--surface)",
    color: "var(--ink)",
    border: "1px solid var(--line-strong)",
    borderRadius: "var(--radius)",
    fontSize: "var(--normal)",
  },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6", minHeight: "6rem", maxHeight: "50vh" },
  ".cm-content": { padding: "var(--s3) 0", caretColor: "var(--ink)" },
  ".cm-line": { padding: "0 var(--s3)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)", borderLeftWidth: "2px" },
  ".cm-placeholder": { color: "var(--ink-2)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    background: "color-mix(in srgb, var(--accent) 25%, transparent)",
  },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--accent-soft)", outline: "1px solid var(--accent)" },
  "&.cm-focused .cm-nonmatchingBracket": { backgroundColor: "var(--bad-soft)" },
  ".cm-tooltip": {
    backgroundColor: "var(--raised)",
    color: "var(--ink)",
    border: "1px solid var(--line)",
    borderRadius: "var(--radius)",
    boxShadow: "var(--shadow)",
    maxWidth: "min(36rem, 90vw)",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": {
    fontFamily: "var(--mono)",
    fontSize: "var(--small)",
    maxHeight: "16rem",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": {
    padding: "var(--s1) var(--s3)",
    display: "flex",
    gap: "var(--s4)",
    justifyContent: "space-between",
  },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent-soft)", color: "var(--ink)" },
  ".cm-completionDetail": { color: "var(--ink-2)", fontStyle: "normal", fontVariantNumeric: "tabular-nums" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700", color: "var(--accent)" },
  ".cm-diagnostic": { padding: "var(--s2) var(--s3)", fontFamily: "var(--font)", fontSize: "var(--small)" },
  ".cm-diagnostic-error": { borderLeft: "4px solid var(--bad)" },
  ".cm-diagnostic-warning": { borderLeft: "4px solid var(--warn)" },
  ".cm-diagnosticAction": {
    backgroundColor: "var(--accent)",
    color: "var(--accent-ink)",
    borderRadius: "0.25rem",
    padding: "var(--s1) var(--s2)",
    margin: "var(--s1) 0 0",
  },
});

// Chromium keeps the colours of the text that is typed over in style attributes, which the policy
// refuses: what replaces a selection is put in its place here.
const replacing = EditorView.domEventHandlers({
  beforeinput(/** @type {InputEvent} */ event, view) {
    const { from, to, empty } = view.state.selection.main;
    const text = event.data ?? "";
    if (event.inputType !== "insertText" || empty || !text || view.composing) return false;
    const insert = () => view.state.update(view.state.replaceSelection(text), { userEvent: "input.type" });
    event.preventDefault();
    if (!view.state.facet(EditorView.inputHandler).some((handle) => handle(view, from, to, text, insert)))
      view.dispatch(insert());
    return true;
  },
});

export class Code extends HTMLElement {
  constructor() {
    super();
    /** @type {any} */
    this.view = null;
    this.text = "";
    this.isReadOnly = false;
    /** @type {Finding[]} */
    this.shown = [];
  }

  connectedCallback() {
    const root = this.shadowRoot ?? this.attachShadow({ mode: "open", delegatesFocus: true });
    this.view = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: this.text,
        extensions: [
          history(),
          drawSelection(),
          bracketMatching(),
          closeBrackets(),
          language,
          replacing,
          syntaxHighlighting(colours),
          theme,
          autocompletion({ override: [completions], icons: false, activateOnTypingDelay: 60 }),
          keymap.of([
            { key: "Mod-Enter", run: () => this.say("save") },
            ...closeBracketsKeymap,
            ...completionKeymap,
            ...lintKeymap,
            ...historyKeymap,
            ...defaultKeymap,
          ]),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({
            "aria-label": this.getAttribute("label") ?? "Definition",
            spellcheck: "false",
            autocapitalize: "off",
            translate: "no",
          }),
          placeholder("//node[@class='display']/vendor[contains(., 'NVIDIA')]"),
          EditorState.readOnly.of(this.isReadOnly),
          EditorView.editable.of(!this.isReadOnly),
          EditorView.updateListener.of((/** @type {any} */ update) => {
            if (!update.docChanged) return;
            this.text = update.state.doc.toString();
            this.say("typed");
          }),
        ],
      }),
    });
    this.findings = this.shown;
  }

  disconnectedCallback() {
    this.view?.destroy();
    this.view = null;
  }

  /** @param {string} name */
  say(name) {
    this.dispatchEvent(new CustomEvent(name, { detail: this.text }));
    return true;
  }

  get value() {
    return this.text;
  }

  set value(text) {
    if (text === this.text) return;
    this.text = text;
    this.view?.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
  }

  /** What is drawn under the text. The API counts characters from 1, CodeMirror UTF-16 units from 0.
   * @param {Finding[]} found */
  set findings(found) {
    this.shown = found;
    if (this.view === null) return;
    const diagnostics = found.map((finding) => {
      const from = Math.min(unit(this.text, finding.column), this.text.length);
      const to = Math.min(Math.max(unit(this.text, finding.end_column + 1), from + 1), this.text.length);
      const { rewrite } = finding;
      return {
        from: Math.min(from, Math.max(to - 1, 0)),
        to,
        severity: finding.severity ?? "warning",
        message: finding.message,
        actions: rewrite === null ? [] : [{ name: "Rewrite", apply: () => (this.value = rewrite) }],
      };
    });
    this.view.dispatch(setDiagnostics(this.view.state, diagnostics));
  }

  focus() {
    this.view?.focus();
  }
}

customElements.define("tm-code", Code);
