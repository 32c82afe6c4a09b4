// The main flow, by openapi-fetch over the types that openapi-typescript has generated:
// node flow.js ADDRESS TOKEN
import createClient from "openapi-fetch";
import type { paths } from "./schema";

declare const process: { argv: string[] };

const [address, token] = process.argv.slice(2) as [string, string];
const client = createClient<paths>({ baseUrl: address, headers: { Authorization: `Bearer ${token}` } });
const asIs = (body: unknown) => body as string;
const path = <T>(given: T) => ({ params: { path: given } });
// Answered when there is nothing left to wait for.
const held = <T>(given: T) => ({ params: { path: given, header: { Prefer: "wait=20" } } });

function done<T>(answer: { data?: T; error?: unknown; response: Response }): T {
  if (!answer.response.ok) throw new Error(`${answer.response.status} ${JSON.stringify(answer.error)}`);
  return answer.data as T;
}

function check(what: boolean, said: string): void {
  if (!what) throw new Error(said);
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
const tag = done(await client.GET("/api/v1/tags/{name}", held({ name: "gpu" })));
check(tag.state === "ready" && tag.node_count === 1, "one node carries the tag");
const nodes = done(await client.GET("/api/v1/tags/{name}/nodes", path({ name: "gpu" })));
// It is offered as lines of text, too.
check(typeof nodes !== "string" && nodes.results[0]?.system_id === "m1", "it is the one");
const preview = done(await client.POST("/api/v1/previews/", { body: { definition: "//node", namespaces: {} } }));
const shown = done(await client.GET("/api/v1/previews/{uuid}", held({ uuid: preview.uuid })));
check(shown.state === "complete", "the preview is whole");
const why = done(
  await client.POST("/api/v1/definitions/explain", { body: { definition: gpu, node: "m1", namespaces: {} } }),
);
check(why.verdict, "it is in");
const begun = done(await client.POST("/api/v1/rebuilds/", { body: { tags: ["gpu"] } }));
const rebuilt = done(await client.GET("/api/v1/rebuilds/{uuid}", held({ uuid: begun.uuid })));
check(rebuilt.state === "complete", "the rebuild is over");
done(await client.DELETE("/api/v1/tags/{name}", path({ name: "gpu" })));
for (const name of ["m0", "m1"]) done(await client.DELETE("/api/v1/nodes/{system_id}", path({ system_id: name })));
const missing = await client.GET("/api/v1/nodes/{system_id}", path({ system_id: "m0" }));
check(missing.error?.code === "not_found", "it is gone");
done(await client.DELETE("/api/v1/clusters/{cluster}", path({ cluster: cluster.uuid })));
