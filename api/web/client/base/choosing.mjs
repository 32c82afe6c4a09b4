// How the list of tags is sorted and filtered.

/** @type {Record<string, (tag: any) => string | number>} */
export const KEYS = {
  name: (tag) => tag.name.toLowerCase(),
  definition: (tag) => (tag.pending_definition ?? tag.definition ?? "").trim(),
  nodes: (tag) => -tag.node_count,
  state: (tag) => ["failed", "building", "ready"].indexOf(tag.state),
  fresh: (tag) => -tag.freshness.pending,
  changed: (tag) => -Date.parse(tag.updated_at),
};
/** @type {[string, string, (tag: any) => boolean][]} */
export const FILTERS = [
  ["all", "All", () => true],
  ["automatic", "Automatic", (tag) => tag.kind === "automatic"],
  ["manual", "Manual", (tag) => tag.kind === "manual"],
  ["building", "Building", (tag) => tag.state === "building"],
  ["failed", "Failed", (tag) => tag.state === "failed"],
];
