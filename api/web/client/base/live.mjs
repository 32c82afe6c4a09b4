// The event streams of rebuilds and previews. A page that nobody sees holds none: browsers allow six
// connections to a server for all their pages together.

/** Hears of each change until it is over; the connection is mended by itself.
 * @param {string} path Relative to /api/v1/.
 * @param {(data: any, isOver: boolean) => void} hear
 * @returns {() => void} Ends it. */
export function listen(path, hear) {
  /** @type {EventSource | null} */
  let source = null;
  let isOver = false;
  const close = () => {
    source?.close();
    source = null;
  };
  const open = () => {
    if (document.hidden || isOver) return close();
    if (source !== null) return;
    source = new EventSource(`/api/v1/${path}`);
    source.addEventListener("progress", (event) => hear(JSON.parse(event.data), false));
    source.addEventListener("end", (event) => {
      end();
      hear(JSON.parse(event.data), true);
    });
  };
  const end = () => {
    isOver = true;
    close();
    document.removeEventListener("visibilitychange", open);
  };
  document.addEventListener("visibilitychange", open);
  open();
  return end;
}
