// Tests of an application that enqueues, with `Outbox` of kit/npm and Node's own test runner. It needs DATABASE_URL, the
// table of ../schema.sql, and the program `postrider` in the PATH.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import pg from "pg";
import { Outbox } from "postrider-testing";

const databaseUrl = process.env.DATABASE_URL ?? "";
const pool = new pg.Pool({ connectionString: databaseUrl });
const outbox = new Outbox({ databaseUrl, client: pool });

before(() => outbox.migrate());
beforeEach(() => outbox.start());
after(() => pool.end());

// What is tested: the application's own code.
async function placeOrder(client: pg.ClientBase, order: number) {
  await client.query("insert into orders values ($1, 'ben')", [order]);
  await client.query(
    "select outbox.enqueue(topic => 'order.placed', payload => $1, lane => 'ben')", [JSON.stringify({ order })]);
}

test("an order is announced", async () => {
  const client = await pool.connect();
  await client.query("begin");
  await placeOrder(client, 23);
  // Within the transaction, over its own connection.
  await outbox.assertEnqueued({ topic: "order.placed", payload: { order: 23 } }, { client });
  await outbox.assertEnqueued({ topic: "order.placed" }, { times: 0 });
  await client.query("commit");
  client.release();
  // After the commit, everybody sees it.
  const [message] = await outbox.assertEnqueued({ topic: "order.placed", payload: { order: 23 }, lane: "ben" });

  // What a relay would deliver, in the order of a lane. It is delivered then, and not due a second time.
  const delivered = await outbox.drain();
  assert.deepEqual(delivered.map((m) => [m.message_id, m.payload]), [[message?.message_id, { order: 23 }]]);
  assert.deepEqual(await outbox.drain(), []);
});

test("a refused order is not announced", async () => {
  const client = await pool.connect();
  await client.query("begin");
  await placeOrder(client, 24);
  await client.query("rollback");
  client.release();
  await outbox.assertEnqueued({}, { times: 0 });
  assert.deepEqual(await outbox.drain(), []);
});
