// Tests of the package itself, on a database of its own (DATABASE_URL). Run by examples/languages/typescript/run.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import pg from "pg";
import { Outbox } from "postrider-testing";

const databaseUrl = process.env.DATABASE_URL;
const pool = new pg.Pool({ connectionString: databaseUrl });
const outbox = new Outbox({ databaseUrl, client: pool });
const enqueue = (client = pool) =>
  client.query(`select outbox.enqueue(topic => 'order.placed', payload => '{"order": 1}', lane => 'ben')`);

before(() => outbox.migrate());
beforeEach(() => outbox.start());
after(() => pool.end());

test("what is missing or twice is said", async () => {
  await enqueue();
  await assert.rejects(outbox.assertEnqueued({ topic: "order.lost" }), /0 instead of 1 with .*order.lost.*order.placed/);
  await assert.rejects(outbox.assertEnqueued({ payload: { order: 2 } }), /0 instead of 1/);
  await assert.rejects(outbox.assertEnqueued({ lane: "ben" }, { times: 0 }), /1 instead of 0/);
  await assert.rejects(outbox.assertEnqueued({ topc: "order.placed" }), /a message has no topc/);
  await enqueue();
  await assert.rejects(outbox.assertEnqueued({ topic: "order.placed" }), /2 instead of 1/);
});

test("only what came since the start is seen", async () => {
  // The ids of a batch run ahead of the clock.
  await pool.query(
    "select outbox.enqueue_many(topic => array_fill('old'::text, array[5000]), payload => array_fill('1'::jsonb, array[5000]))");
  await outbox.start();
  await enqueue();
  assert.deepEqual((await outbox.enqueued()).map((message) => message.topic), ["order.placed"]);
  assert.deepEqual((await outbox.drain()).map((message) => message.topic), ["order.placed"]);
});

test("a transaction sees its own", async () => {
  const client = await pool.connect();
  await client.query("begin");
  await enqueue(client);
  await outbox.assertEnqueued({ topic: "order.placed" }, { client });
  await client.query("rollback");
  client.release();
  await outbox.assertEnqueued({}, { times: 0 });
});

test("a program that fails is an error", async () => {
  const lost = new Outbox({ databaseUrl, client: pool, schema: "no_such_schema" });
  await assert.rejects(lost.drain(), /postrider drain/);
});
