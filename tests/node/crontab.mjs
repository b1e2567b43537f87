// Read crontabs: one JSON line in, {"lines": [...], "minutes": [...]}; one JSON line out for each of the lines.
import { parseCrontab } from "graphile-worker";

let input = "";
for await (const chunk of process.stdin) input += chunk;
const { lines, minutes } = JSON.parse(input);
for (const line of lines) {
  let items;
  try {
    items = parseCrontab(line);
  } catch (error) {
    console.log(JSON.stringify({ line, error: error.message }));
    continue;
  }
  const [{ task, identifier, payload, options, match }] = items;
  console.log(JSON.stringify({ line, task, identifier, payload, options, matches: minutes.map((minute) => match(minute)) }));
}
