// Styles that are numbers, set by script: the policy refuses style attributes, as of Lit's styleMap.
import { Directive, directive, nothing, PartType } from "../vendor/lit.mjs";

class Styled extends Directive {
  /** @param {any} part */
  constructor(part) {
    super(part);
    if (part.type !== PartType.ELEMENT) throw new Error("styled() stands in an element's tag");
  }

  /** @param {Record<string, string>} _styles */
  render(_styles) {
    return nothing;
  }

  /** @param {any} part @param {[Record<string, string>]} styles */
  update(part, [styles]) {
    for (const [name, value] of Object.entries(styles)) part.element.style.setProperty(name, value);
    return nothing;
  }
}

/** `<div ${styled({width: "50%"})}>` */
export const styled = directive(Styled);
