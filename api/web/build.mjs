// Bundles what the workbench uses of other people's modules into client/vendor, with their licences.
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const MAX_GZIP_BYTES = 250_000;
const here = dirname(fileURLToPath(import.meta.url));
const entries = join(here, "vendor-entries");
const out = join(here, "client", "vendor");

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
const names = (await readdir(entries)).filter((name) => name.endsWith(".mjs")).sort();
const result = await build({
  absWorkingDir: here,
  entryPoints: names.map((name) => join(entries, name)),
  outdir: out,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "eof",
  metafile: true,
});

await cp(join(here, "node_modules", "uplot", "dist", "uPlot.min.css"), join(out, "uplot.css"));

const packages = new Set(
  Object.keys(result.metafile.inputs)
    .map((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1])
    .filter((name) => name !== undefined),
);
const licences = [];
for (const name of [...packages].sort()) {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const file = (await readdir(folder)).find((found) => /^licen[cs]e/i.test(found));
  const text = file === undefined ? "" : await readFile(join(folder, file), "utf8");
  licences.push(`${name} ${version} (${license})\n\n${text.trim()}\n`);
}
await writeFile(join(out, "LICENSES.txt"), licences.join(`\n${"-".repeat(80)}\n\n`));

let total = 0;
for (const name of [...names, "uplot.css"]) {
  const bytes = gzipSync(await readFile(join(out, name)), { level: 9 }).length;
  total += bytes;
  console.log(`${name.padEnd(14)} ${(bytes / 1000).toFixed(1).padStart(6)} kB gzip`);
}
if (total > MAX_GZIP_BYTES) throw new Error(`${total} bytes: ${MAX_GZIP_BYTES} is the limit`);
