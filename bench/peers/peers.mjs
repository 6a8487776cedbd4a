// Drives the systems that are npm packages: `node peers.mjs NAME VERB [COUNT] [PARALLEL]`, with the database in DATABASE_URL.
// Prints the seconds that the work took. Called by `run`; each system is used through its own public functions.

import { makeWorkerUtils, runOnce } from "graphile-worker";
import { Logger } from "graphile-worker";
import pg from "pg";
import * as bossPackage from "pg-boss";

const PgBoss = bossPackage.PgBoss ?? bossPackage.default;
const [name, verb, count = 1, parallel = 1] = [...process.argv.slice(2, 4), ...process.argv.slice(4).map(Number)];
const connectionString = process.env.DATABASE_URL;
const payload = { data: process.env.PAYLOAD };
const quiet = new Logger(() => () => {});

async function timed(work) {
  const started = process.hrtime.bigint();
  await work();
  return Number(process.hrtime.bigint() - started) / 1e9;
}

const eachProducer = (once) =>
  Promise.all(
    Array.from({ length: parallel }, async () => {
      for (let n = 0; n < Math.floor(count / parallel); n++) await once();
    }),
  );

const batches = async (once) => {
  for (let n = 0; n < Math.floor(count / parallel); n++) await once();
};

// `send` and `insert`; messages are fetched a thousand at a time and completed together.
async function pgBoss() {
  const boss = new PgBoss({ connectionString, max: 20, supervise: false, schedule: false });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  try {
    if (verb === "setup") return void (await boss.createQueue("bench"));
    if (verb === "single") return await timed(() => eachProducer(() => boss.send("bench", payload)));
    if (verb === "batch") {
      const jobs = Array.from({ length: parallel }, () => ({ data: payload }));
      return await timed(() => batches(() => boss.insert("bench", jobs)));
    }
    return await timed(async () => {
      for (;;) {
        const jobs = await boss.fetch("bench", { batchSize: 1000 });
        if (!jobs?.length) return;
        await boss.complete("bench", jobs.map((job) => job.id));
      }
    });
  } finally {
    await boss.stop({ graceful: false });
  }
}

// `addJob` and `add_jobs`; a runner with a local queue and completion in batches.
async function graphileWorker() {
  const pgPool = new pg.Pool({ connectionString, max: 40 });
  const utils = await makeWorkerUtils({ pgPool, logger: quiet });
  try {
    if (verb === "setup") return void (await utils.migrate());
    if (verb === "single") return await timed(() => eachProducer(() => utils.addJob("bench", payload)));
    if (verb === "batch") {
      const specs = JSON.stringify(Array.from({ length: parallel }, () => ({ identifier: "bench", payload })));
      const sql = `select count(*) from graphile_worker.add_jobs(array(
        select json_populate_recordset(null::graphile_worker.job_spec, $1::json)))`;
      return await timed(() => batches(() => pgPool.query(sql, [specs])));
    }
    return await timed(() => runOnce({
      pgPool,
      logger: quiet,
      taskList: { bench: async () => {} },
      preset: { worker: { concurrentJobs: 32, completeJobBatchDelay: 0 } },
      concurrency: 32,
      noHandleSignals: true,
    }));
  } finally {
    await utils.release();
    await pgPool.end();
  }
}

const seconds = await { "pg-boss": pgBoss, "graphile-worker": graphileWorker }[name]();
if (seconds !== undefined) console.log(seconds.toFixed(4));
process.exit(0);
