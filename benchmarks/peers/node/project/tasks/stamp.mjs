// The task of the measured command: reports when it started, and the CPU time of the process until then.
export default async (payload) => {
  const at = performance.timeOrigin + performance.now();
  const { user, system } = process.cpuUsage();
  process.stdout.write(JSON.stringify({ number: payload.number, at, cpu: (user + system) / 1000 }) + "\n");
};
