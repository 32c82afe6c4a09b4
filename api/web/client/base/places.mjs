// A tag's members as the API has them, a bitmap for each partition: where the pages of its list begin.

/** @typedef {{count: number, begins: string[], cluster: (index: number) => string}} Places */

/** @param {{count: number, partitions: {partition: number, cluster: string, count: number, slots: string}[]}} members
 * @param {number} page Rows of a page. @returns {Places} */
export function places({ count, partitions }, page) {
  const begins = [];
  /** Before which place in the list each partition ends. @type {number[]} */
  const ends = [];
  let index = 0;
  for (const { partition, slots } of partitions) {
    const bytes = atob(slots);
    for (let at = 0; at < bytes.length; at += 1) {
      for (let byte = bytes.charCodeAt(at), slot = 8 * at; byte; byte >>= 1, slot += 1) {
        if (byte & 1 && index++ % page === 0) begins.push(`${partition}.${slot}`);
      }
    }
    ends.push(index);
  }
  const cluster = (/** @type {number} */ place) => partitions[ends.findIndex((end) => place < end)]?.cluster ?? "";
  return { count, begins, cluster };
}
