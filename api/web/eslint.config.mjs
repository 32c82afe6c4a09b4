import js from "@eslint/js";

const BROWSER = ["document", "location", "history", "fetch", "EventSource", "Event", "CustomEvent", "EventTarget", "URL",
  "URLSearchParams", "Headers", "AbortController", "AbortSignal", "DOMException", "DOMParser", "HTMLAnchorElement", "HTMLElement",
  "customElements", "matchMedia", "addEventListener", "removeEventListener", "getComputedStyle", "innerWidth", "setTimeout",
  "clearTimeout", "requestAnimationFrame", "sessionStorage", "localStorage", "performance", "navigator", "console", "Element",
  "Node", "crypto", "window", "SharedWorker", "self"];

export default [
  { ignores: ["client/vendor/**", "node_modules/**"] },
  js.configs.recommended,
  {
    files: ["client/**/*.mjs"],
    languageOptions: { ecmaVersion: 2023, sourceType: "module", globals: Object.fromEntries(BROWSER.map((name) => [name, "readonly"])) },
    rules: {
      eqeqeq: "error", "no-var": "error", "prefer-const": "error", "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
      "max-lines": ["error", 300], "max-len": ["error", { code: 200 }],
    },
  },
  { files: ["*.mjs"], languageOptions: { globals: { console: "readonly" } } },
];
