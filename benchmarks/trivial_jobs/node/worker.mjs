// A worker of graphile-worker that is measured. It runs until it is killed.
//   worker.mjs migrate    create its schema
//   worker.mjs work       run jobs: `noop` reports to the file REPORT, `stamp` to standard output
// SETTINGS are the options of its preset; with LOG=1 it writes its usual log to standard output.
import { appendFileSync } from "node:fs";
import { run, runMigrations } from "graphile-worker";
import { Logger } from "@graphile/logger";

const connectionString = process.env.DATABASE_URL;
if (process.argv[2] === "migrate") {
  await runMigrations({ connectionString });
  process.exit(0);
}

const every = Number(process.env.REPORT_EVERY ?? "1000");
let count = 0;
const report = (line) => appendFileSync(process.env.REPORT, line + "\n");

const taskList = {
  noop: async () => {
    if (count === 0) report(`first ${Number(process.hrtime.bigint()) / 1e9}`);
    count += 1;
    if (count % every === 0) report(String(every));
  },
  stamp: async (payload) => {
    const at = performance.timeOrigin + performance.now();
    process.stdout.write(JSON.stringify({ number: payload.number, at }) + "\n");
  },
};

await run({
  connectionString,
  preset: { worker: JSON.parse(process.env.SETTINGS ?? "{}") },
  noHandleSignals: true,
  taskList,
  ...(process.env.LOG === "1" ? {} : { logger: new Logger(() => () => {}) }),
});
