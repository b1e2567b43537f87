// Add the jobs that stand on standard input, one JSON object a line: add.mjs URL SCHEMA
// {"add": [identifier, payload, spec]} or {"batch": [[specs], preserveRunAt]}; prints each job that came back.
import { Logger, makeWorkerUtils } from "graphile-worker";

const [connectionString, schema] = process.argv.slice(1);
const utils = await makeWorkerUtils({ connectionString, schema, logger: new Logger(() => () => {}) });
let text = "";
for await (const chunk of process.stdin) text += chunk;
try {
  for (const line of text.split("\n").filter(Boolean)) {
    const request = JSON.parse(line, (key, value) => (key === "runAt" ? new Date(value) : value));
    const jobs = request.add
      ? [await utils.addJob(...request.add)]
      : await utils.addJobs(...request.batch);
    for (const job of jobs) console.log(JSON.stringify(job));
  }
} finally {
  await utils.release();
}
