// Places orders with node-postgres. The order's row and its message are written in one transaction of the application.
// It needs DATABASE_URL, an outbox (`postrider migrate up`) and the table of ../schema.sql.

import pg from "pg";

const ENQUEUE = `
  select message_id, sequence_id, created
  from outbox.enqueue(topic => $1, payload => $2, lane => $3, dedupe_key => $4)`;

type Enqueued = { message_id: string; sequence_id: string | null; created: boolean };

// JSON.stringify is needed: node-postgres turns an array into an array of PostgreSQL, and [] into the text {}.
async function enqueue(client: pg.ClientBase, topic: string, payload: unknown, lane?: string, dedupeKey?: string) {
  const { rows } = await client.query<Enqueued>(ENQUEUE, [topic, JSON.stringify(payload), lane, dedupeKey]);
  return rows[0]!;
}

async function placeOrder(client: pg.ClientBase, order: number, customer: string, items: string[]) {
  await client.query("insert into orders values ($1, $2) on conflict do nothing", [order, customer]);
  const placed = await enqueue(client, "order.placed", { order }, customer, `order-${order}/placed`);
  await enqueue(client, "items.reserved", items, customer, `order-${order}/reserved`);
  console.log(`order ${order}: created ${placed.created}, number ${placed.sequence_id} of ${customer}`);
}

// One client for the whole transaction: `pool.query` could take another connection for each statement.
async function inTransaction<T>(pool: pg.Pool, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  try {
    await client.query("begin");
    const result = await work(client);
    await client.query("commit");
    return result;
  } catch (error) {
    // A connection that cannot roll back is closed, not put back into the pool.
    await client.query("rollback").catch((failed: Error) => (broken = failed));
    throw error;
  } finally {
    client.release(broken);
  }
}

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
try {
  await inTransaction(pool, (client) => placeOrder(client, 20, "customer-3", ["lamp", "bulb"]));

  // The same request again: its keys are known. Nothing is written, and created is false.
  await inTransaction(pool, (client) => placeOrder(client, 20, "customer-3", ["lamp", "bulb"]));

  // A rollback takes both along, and the lane's number is given again.
  const refused = inTransaction(pool, async (client) => {
    await placeOrder(client, 21, "customer-3", ["desk"]);
    throw new Error("the card was refused");
  });
  await refused.catch(async (error: Error) => {
    const found = await pool.query(
      "select (select count(*) from orders where id = 21) as orders, count(*) as messages from outbox.find_keys('order-21/placed')");
    console.log(`${error.message}: left:`, found.rows[0]);
  });

  // What breaks a rule of the outbox is an error with the SQLSTATE 22023, and a hint that says what to do.
  await inTransaction(pool, (client) => enqueue(client, "order.placed", {}, "")).catch((error: unknown) => {
    if (!(error instanceof pg.DatabaseError)) throw error;
    console.log(`${error.code}: ${error.message}. ${error.hint}`);
  });
} finally {
  await pool.end();
}
