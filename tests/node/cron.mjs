// Register a crontab, make up what was missed, and stop: cron.mjs URL SCHEMA CRONTAB
import { EventEmitter, once } from "node:events";
import { Logger, run } from "graphile-worker";

const [connectionString, schema, crontab] = process.argv.slice(1);
const events = new EventEmitter();
const started = once(events, "cron:started");
const runner = await run({
  connectionString,
  schema,
  crontab,
  events,
  noHandleSignals: true,
  taskList: { unrelated: async () => {} },
  logger: new Logger(() => () => {}),
});
await started;
await runner.stop();
process.exit(0);
