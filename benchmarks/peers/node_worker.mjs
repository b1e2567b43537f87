// A worker of graphile-worker that is measured; it reports on standard output.
//   node_worker.mjs drain  N       run N `noop` jobs; report the seconds from the first start to the last deleted row
//   node_worker.mjs migrate        create its schema
//   node_worker.mjs serve          run `stamp` jobs until standard input closes; report each start
import { run, runMigrations } from "graphile-worker";
import { Logger } from "@graphile/logger";
import pg from "pg";

const [, , mode, countText] = process.argv;
const connectionString = process.env.DATABASE_URL;
const worker = JSON.parse(process.env.SETTINGS ?? "{}");
const limit = Number(process.env.TIME_LIMIT ?? "60") * 1000;
const count = Number(countText ?? "0");
let started = 0;
let firstAt = 0;
let finish;
const finished = new Promise((resolve) => (finish = resolve));

const taskList = {
  noop: async () => {
    if (started === 0) firstAt = performance.now();
    started += 1;
    if (started === count) finish();
  },
  stamp: async (payload) => {
    const at = performance.timeOrigin + performance.now();
    const { user, system } = process.cpuUsage();
    process.stdout.write(JSON.stringify({ number: payload.number, at, cpu: (user + system) / 1000 }) + "\n");
  },
};

if (mode === "migrate") {
  await runMigrations({ connectionString });
  process.exit(0);
}
const runner = await run({
  connectionString,
  preset: { worker },
  logger: new Logger(() => () => {}),
  noHandleSignals: true,
  taskList,
});
process.stdout.write(JSON.stringify({ ready: true }) + "\n");

if (mode === "serve") {
  process.stdin.resume();
  process.stdin.on("end", () => runner.stop().finally(() => process.exit(0)));
} else {
  await Promise.race([finished, new Promise((resolve) => setTimeout(resolve, limit))]);
  const client = new pg.Client({ connectionString });
  await client.connect();
  if (started >= count) {
    for (;;) {
      const left = await client.query(process.env.LEFT_QUERY);
      if (!left.rows[0].left) break;
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  }
  const seconds = (performance.now() - firstAt) / 1000;
  process.stdout.write(JSON.stringify({ seconds, jobs: Math.min(started, count) }) + "\n");
  process.exit(0);
}
