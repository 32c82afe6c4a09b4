// Files of `lshw -xml` that somebody drops: each is a node, whose hostname is the machine's. Whether
// they are well-formed the server says, with the place.

const MAX_BYTES = 16 * 1024 * 1024;
const FIRST_NODE = /<node\b[^>]*?\sid\s*=\s*(?:"([^"]*)"|'([^']*)')/;
// What a hostname is made of; anything else, as an entity, is not guessed at.
const HOSTNAME = /^[A-Za-z0-9_.-]{1,64}$/;

/** @typedef {{file: string, system_id: string, hostname: string, xml: string, wrong: string}} Dropped */

/** @param {File} file @returns {Promise<Dropped>} */
export async function read(file) {
  const name = file.name.replace(/\.(xml|lshw)$/i, "").replace(/[^A-Za-z0-9_.-]/g, "-");
  const found = { file: file.name, system_id: name, hostname: name, xml: "", wrong: "" };
  if (file.size > MAX_BYTES) return { ...found, wrong: "It has more than 16 MiB." };
  found.xml = await file.text();
  const named = FIRST_NODE.exec(found.xml);
  const hostname = named?.[1] ?? named?.[2] ?? "";
  if (HOSTNAME.test(hostname)) found.hostname = hostname;
  return found;
}
