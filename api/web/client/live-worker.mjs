// The one event stream of a browser: a worker that its pages share holds it, since browsers allow six
// connections to a server for all their pages together.
import { Stream } from "./base/stream.mjs";

/** @type {Set<MessagePort>} */
const ports = new Set();
const stream = new Stream((heard) => {
  for (const port of ports) port.postMessage(heard);
});

/** @type {any} */ (self).onconnect = (/** @type {MessageEvent} */ event) => {
  const port = /** @type {MessagePort} */ (event.ports[0]);
  ports.add(port);
  port.onmessage = () => ports.delete(port);
  if (stream.source === null) stream.open();
  else if (stream.isLost) port.postMessage({ kind: "lost" });
};
