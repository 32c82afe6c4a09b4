// Who is logged in, as the frame's page says it.

const { user = "", role = "", may = "" } = document.body.dataset;
const rights = new Set(may.split(" "));

export const session = { user, role };

/** Whether the server would take a request for which this role is needed. For "nodes" a viewer's in
 * some clusters is enough.
 * @param {"viewer" | "operator" | "admin" | "nodes"} needed */
export function allowed(needed) {
  return rights.has(needed);
}
