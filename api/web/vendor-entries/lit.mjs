export { html, LitElement, nothing, svg } from "lit";
export { Directive, directive, PartType } from "lit/directive.js";
export { ifDefined } from "lit/directives/if-defined.js";
export { keyed } from "lit/directives/keyed.js";
export { live } from "lit/directives/live.js";
export { repeat } from "lit/directives/repeat.js";
