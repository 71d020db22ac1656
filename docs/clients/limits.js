// Limits from Node, through a Redis Cluster: npm install redis@4; node limits.js HOST:PORT USER
const { createCluster } = require("redis");

async function main() {
  const [address, user] = process.argv.slice(2);
  const cluster = createCluster({ rootNodes: [{ url: `redis://${address}` }] });
  await cluster.connect();
  const requests = `{${user}}:requests`;
  const search = `{${user}}:search`;
  // The first key says which node; false, because the call may write.
  const call = (name, key, ...args) => cluster.sendCommand(key, false, [name, key, ...args.map(String)]);

  let [allowed, limit, remaining, retryAfterMs, resetAfterMs] = await call("RL.SLIDE", requests, 100, "60s");
  console.log(`SLIDE allowed=${allowed} limit=${limit} remaining=${remaining}`);

  [allowed, limit, remaining] = await call("RL.BUCKET", search, 200, 100, "1h", 5);
  console.log(`BUCKET allowed=${allowed} limit=${limit} remaining=${remaining}`);

  // Both or none.
  const [both, , limits] = await call("RL.MULTI", requests, "SLIDE 100 60s", search, "BUCKET 200 100 1h 5");
  console.log(`MULTI allowed=${both} remaining=${limits.map((each) => each[2]).join(",")}`);

  await cluster.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
