// What a view has asked the API for, as commands to copy into a terminal.

const MAX_ASKED = 20;
const PREVIEWS = "/api/v1/previews/";
/** @type {Map<string, {method: string, path: string, body: unknown}>} */
const requests = new Map();

/** @param {string} method @param {string} path @param {unknown} body */
export function note(method, path, body) {
  // A newer preview ends the older. Whoever runs the command has one beside the page's.
  if (method === "POST" && path.startsWith(PREVIEWS)) {
    for (const before of requests.keys()) if (before.includes(PREVIEWS)) requests.delete(before);
    body = { .../** @type {object} */ (body), client: undefined };
  }
  const key = `${method} ${path.replace(/[?&](after|limit)=[^&]*/g, "")}`;
  requests.delete(key);
  requests.set(key, { method, path, body });
  if (requests.size > MAX_ASKED) requests.delete(/** @type {string} */ (requests.keys().next().value));
}

/** Another view begins. */
export function forget() {
  requests.clear();
}

/** The commands, those asked last at the end. @returns {string[]} */
export function commands() {
  return [...requests.values()].map(({ method, path, body }) =>
    [
      "curl",
      ...(method === "GET" ? [] : [`-X ${method}`]),
      '-H "Authorization: Token $TAGMILL_TOKEN"',
      ...(body === undefined ? [] : ["-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`]),
      quoted(location.origin + path),
    ].join(" "),
  );
}

/** As a shell takes it. @param {string} text */
function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
