// Runs the unit tests: `npm test`. They are bundled first, since node 20 does not read TypeScript.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const folder = join(dirname(fileURLToPath(import.meta.url)), "test");
const target = mkdtempSync(join(tmpdir(), "plait-page-"));
try {
  const entryPoints = readdirSync(folder).filter((name) => name.endsWith(".test.ts")).map((name) => join(folder, name));
  await build({ entryPoints, outdir: target, bundle: true, platform: "node", format: "esm", outExtension: { ".js": ".mjs" }, logLevel: "warning" });
  const files = readdirSync(target).map((name) => join(target, name));
  process.exitCode = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(target, { recursive: true });
}
