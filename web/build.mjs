// Builds the page: `npm run build`. The result is committed, so that neither plait nor its tests need node.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(fileURLToPath(import.meta.url));
const source = join(root, "src");
const target = join(root, "..", "src", "plait", "serve", "static");

// The same digest as tests/serve/page/test_build.py: of each file in order, its name, its size and its bytes.
const names = [...readdirSync(source).map((name) => `src/${name}`), "build.mjs", "package.json", "package-lock.json", "tsconfig.json"].sort();
const hash = createHash("sha256");
for (const name of names) {
  const bytes = readFileSync(join(root, name));
  hash.update(`${name}\n${bytes.length}\n`).update(bytes);
}
const digest = hash.digest("hex").slice(0, 32);

mkdirSync(target, { recursive: true });
const common = { bundle: true, minify: true, write: false, target: ["es2022"], legalComments: "none", charset: "utf8" };
const script = await build({ ...common, entryPoints: [join(source, "main.ts")], format: "iife" });
const style = await build({ ...common, entryPoints: [join(source, "app.css")] });
writeFileSync(join(target, "app.js"), script.outputFiles[0].contents);
writeFileSync(join(target, "app.css"), style.outputFiles[0].contents);
writeFileSync(join(target, "icon.svg"), readFileSync(join(source, "icon.svg")));
writeFileSync(join(target, "index.html"), readFileSync(join(source, "index.html"), "utf8").replaceAll("%BUILD%", digest));
for (const name of readdirSync(target).sort()) console.log(`${name}  ${readFileSync(join(target, name)).length} bytes`);
