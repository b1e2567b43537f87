// The task of the measured command: reports when it started.
export default async (payload) => {
  const at = performance.timeOrigin + performance.now();
  process.stdout.write(JSON.stringify({ number: payload.number, at }) + "\n");
};
