// The main flow, by openapi-fetch over the types that openapi-typescript has generated:
// node flow.js ADDRESS TOKEN
import createClient from "openapi-fetch";
import type { paths } from "./schema";

declare const process: { argv: string[] };
declare function setTimeout(done: () => void, milliseconds: number): void;

const [address, token] = process.argv.slice(2) as [string, string];
const client = createClient<paths>({ baseUrl: address, headers: { Authorization: `Bearer ${token}` } });
const asIs = (body: unknown) => body as string;
const path = <T>(given: T) => ({ params: { path: given } });

function done<T>(answer: { data?: T; error?: unknown; response: Response }): T {
  if (!answer.response.ok) throw new Error(`${answer.response.status} ${JSON.stringify(answer.error)}`);
  return answer.data as T;
}

function check(what: boolean, said: string): void {
  if (!what) throw new Error(said);
}

async function until<T>(read: () => Promise<T>, is: (found: T) => boolean): Promise<T> {
  for (let attempt = 0; attempt < 300; attempt += 1) {
    const found = await read();
    if (is(found)) return found;
    await new Promise<void>((next) => setTimeout(next, 100));
  }
  throw new Error("it took too long");
}

const gpu = "//node[@class='display']";
const cluster = done(await client.POST("/api/v1/clusters/", { body: { name: "north" } }));
const lines = '{"system_id": "m0"}\n{"system_id": "m1"}\n';
const verdicts = done(
  await client.POST("/api/v1/nodes/import", {
    body: lines,
    bodySerializer: asIs,
    headers: { "Content-Type": "application/x-ndjson" },
    parseAs: "text",
  }),
);
check(String(verdicts).includes('"created":2'), "imported");
done(
  await client.PUT("/api/v1/nodes/{system_id}/document", {
    ...path({ system_id: "m1" }),
    body: "<list><node class='display'/></list>",
    bodySerializer: asIs,
    headers: { "Content-Type": "application/xml" },
  }),
);
done(await client.POST("/api/v1/tags/", { body: { name: "gpu", definition: gpu } }));
const tag = await until(
  async () => done(await client.GET("/api/v1/tags/{name}", path({ name: "gpu" }))),
  (found) => found.state === "ready",
);
check(tag.node_count === 1, "one node carries the tag");
const nodes = done(await client.GET("/api/v1/tags/{name}/nodes", path({ name: "gpu" })));
// It is offered as lines of text, too.
check(typeof nodes !== "string" && nodes.results[0]?.system_id === "m1", "it is the one");
const preview = done(await client.POST("/api/v1/previews/", { body: { definition: "//node", namespaces: {} } }));
await until(
  async () => done(await client.GET("/api/v1/previews/{uuid}", path({ uuid: preview.uuid }))),
  (found) => found.state === "complete",
);
const why = done(
  await client.POST("/api/v1/definitions/explain", { body: { definition: gpu, node: "m1", namespaces: {} } }),
);
check(why.verdict, "it is in");
const begun = done(await client.POST("/api/v1/rebuilds/", { body: { tags: ["gpu"] } }));
await until(
  async () => done(await client.GET("/api/v1/rebuilds/{uuid}", path({ uuid: begun.uuid }))),
  (found) => found.state === "complete",
);
done(await client.DELETE("/api/v1/tags/{name}", path({ name: "gpu" })));
for (const name of ["m0", "m1"]) done(await client.DELETE("/api/v1/nodes/{system_id}", path({ system_id: name })));
const missing = await client.GET("/api/v1/nodes/{system_id}", path({ system_id: "m0" }));
check(missing.error?.code === "not_found", "it is gone");
done(await client.DELETE("/api/v1/clusters/{cluster}", path({ cluster: cluster.uuid })));
