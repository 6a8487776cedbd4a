// Places an order with Drizzle over node-postgres. The row and its message are written in Drizzle's transaction.
// It needs DATABASE_URL, an outbox (`postrider migrate up`) and the table of ../schema.sql.

import { DrizzleQueryError, sql } from "drizzle-orm";
import { drizzle, type NodePgDatabase } from "drizzle-orm/node-postgres";
import { bigint, pgTable, text } from "drizzle-orm/pg-core";
import pg from "pg";

const orders = pgTable("orders", { id: bigint({ mode: "number" }).primaryKey(), customer: text().notNull() });

type Enqueued = { message_id: string; sequence_id: string | null; created: boolean };
type Options = { lane?: string; dedupeKey?: string };

// JSON.stringify is needed: Drizzle writes an array as a list of parameters, so [1] would be 1.
async function enqueue(tx: Pick<NodePgDatabase, "execute">, topic: string, payload: unknown, options: Options = {}) {
  const { rows } = await tx.execute<Enqueued>(sql`
    select message_id, sequence_id, created
    from outbox.enqueue(topic => ${topic}, payload => ${JSON.stringify(payload)},
                        lane => ${options.lane ?? null}, dedupe_key => ${options.dedupeKey ?? null})`);
  return rows[0]!;
}

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const db = drizzle(pool);
try {
  await db.transaction(async (tx) => {
    await tx.insert(orders).values({ id: 22, customer: "customer-4" });
    await enqueue(tx, "order.placed", { order: 22 }, { lane: "customer-4", dedupeKey: "order-22/placed" });
    const message = await enqueue(tx, "items.reserved", ["lamp", "bulb"], { lane: "customer-4" });
    console.log(`order 22: created ${message.created}, number ${message.sequence_id} of customer-4`);
  });

  // Drizzle wraps the database's error.
  await db.transaction((tx) => enqueue(tx, "", {})).catch((error: unknown) => {
    if (!(error instanceof DrizzleQueryError && error.cause instanceof pg.DatabaseError)) throw error;
    console.log(`${error.cause.code}: ${error.cause.message}. ${error.cause.hint}`);
  });
} finally {
  await pool.end();
}
