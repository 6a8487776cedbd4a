// Delivers what is due for the sink `default`, then ends: claims a batch, handles each message, completes them together.
// It needs DATABASE_URL. A service would wait and repeat. `postrider run` does the same with retries, limits and metrics.

import { hostname } from "node:os";
import pg from "pg";

const WORKER = `${hostname()}-${process.pid}`;
// lane_run: one message of a lane at a time. What is behind one that fails must not be sent before it.
const CLAIM = `
  select message_id, lease_token, topic, payload, attempt_count
  from outbox.claim(worker_id => $1, batch_size => 100, lease_seconds => 60, lane_run => 1)`;
const COMPLETE = `
  select count(*)::integer as done from outbox.complete_many(
    message_id => $1, lease_token => $2, state => $3, retry_after_seconds => $4, error_message => $5,
    worker_id => $6)`;

type Claimed = { message_id: string; lease_token: string; topic: string; payload: unknown; attempt_count: number };
type Outcome = { state: "DISPATCHED" | "RETRYABLE"; delay: number | null; error: string | null };

// May see a message a second time: delivery is at least once.
async function handle({ topic, payload }: Claimed): Promise<void> {
  console.log(topic, JSON.stringify(payload));
}

async function attempt(message: Claimed): Promise<Outcome> {
  try {
    await handle(message);
    return { state: "DISPATCHED", delay: null, error: null };
  } catch (error) {
    // Due again after 2, 4, 8 … seconds; dead after the tenth attempt.
    return { state: "RETRYABLE", delay: 2 ** message.attempt_count, error: String(error) };
  }
}

// Outside a transaction: the claim is committed before anything is handled.
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
try {
  for (;;) {
    const { rows: claimed } = await pool.query<Claimed>(CLAIM, [WORKER]);
    if (claimed.length === 0) break;
    const outcomes: Outcome[] = [];
    for (const message of claimed) outcomes.push(await attempt(message));
    // Here arrays are meant: node-postgres passes them as arrays of PostgreSQL.
    const { rows } = await pool.query<{ done: number }>(COMPLETE, [
      claimed.map((message) => message.message_id),
      claimed.map((message) => message.lease_token),
      outcomes.map((outcome) => outcome.state),
      outcomes.map((outcome) => outcome.delay),
      outcomes.map((outcome) => outcome.error),
      WORKER,
    ]);
    const lost = claimed.length - rows[0]!.done;
    if (lost > 0) console.log(`${lost} leases were lost: another worker has these messages`);
  }
} finally {
  await pool.end();
}
