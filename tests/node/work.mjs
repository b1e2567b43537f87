// Work until so many jobs have run: work.mjs URL SCHEMA COUNT TASK...
// Prints {"ready": true}, then for each job its id, task and payload. A payload {"fail": true} fails once; a payload
// {"gate": number} waits until no other session holds this advisory lock.
import { Logger, run } from "graphile-worker";

const [connectionString, schema, count, ...names] = process.argv.slice(1);
let left = Number(count);
const failed = new Set();
const task = (name) => async (payload, helpers) => {
  if (payload?.fail && !failed.has(helpers.job.id)) {
    failed.add(helpers.job.id);
    throw new Error("Failed on purpose.");
  }
  if (payload?.gate) await helpers.query("select pg_advisory_xact_lock($1)", [payload.gate]);
  console.log(JSON.stringify({ id: helpers.job.id, task: name, payload, attempts: helpers.job.attempts }));
  left -= 1;
};
const runner = await run({
  connectionString,
  schema,
  concurrency: 4,
  pollInterval: 100,
  noHandleSignals: true,
  taskList: Object.fromEntries(names.map((name) => [name, task(name)])),
  logger: new Logger(() => () => {}),
});
console.log(JSON.stringify({ ready: true }));
const deadline = Date.now() + 120_000;
while (left > 0 && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 20));
await runner.stop();
process.exit(left > 0 ? 3 : 0);
