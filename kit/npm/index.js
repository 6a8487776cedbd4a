// Tests of an application that enqueues with Postrider: what it enqueued, and what would be delivered. It runs the program
// `postrider` from the PATH, or the one that the variable POSTRIDER names, and asks through the application's own client of
// PostgreSQL. It must not change anything but the outbox of the database that it is given.

import { deepStrictEqual, strictEqual } from "node:assert";
import { execFile } from "node:child_process";
import { promisify, isDeepStrictEqual } from "node:util";

// The first id that a message can have from now on, and those that are there already: a batch's ids run ahead of the clock.
const start = (schema) => `
  with first as (
    select (lpad(to_hex(floor(extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid as id
  )
  select first.id::text as first,
         coalesce(array_agg(m.message_id::text) filter (where m.message_id is not null), '{}') as older
  from first left join ${schema}.messages m on m.message_id >= first.id
  group by first.id`;
const messages = (schema) =>
  `select to_jsonb(m)::text as message from ${schema}.messages m where m.message_id >= $1 order by m.message_id`;
// What would lead a drain to another outbox, or away from its output.
const FOREIGN = /^(CLOUD_INGESTION_URL$|POSTRIDER_|OUTBOX_)/;
const MOST_OUTPUT_BYTES = 64 * 1024 * 1024;

export class Outbox {
  #first = "00000000-0000-0000-0000-000000000000";
  #older = new Set();

  constructor({ databaseUrl, client, schema = "outbox" }) {
    this.databaseUrl = databaseUrl;
    this.client = client;
    this.schema = schema;
  }

  async migrate() {
    await this.#run("migrate", "up");
  }

  async start() {
    const { rows } = await this.client.query(start(this.schema));
    this.#first = rows[0].first;
    this.#older = new Set(rows[0].older);
  }

  async enqueued(client = this.client) {
    const { rows } = await client.query(messages(this.schema), [this.#first]);
    return rows.map((row) => JSON.parse(row.message)).filter((message) => this.#isNew(message));
  }

  async assertEnqueued(expected = {}, { client = this.client, times = 1 } = {}) {
    const all = await this.enqueued(client);
    const unknown = Object.keys(expected).filter((name) => all.some((message) => !(name in message)));
    deepStrictEqual(unknown, [], `a message has no ${unknown}; it has ${Object.keys(all[0] ?? {})}`);
    const is = (message) => Object.entries(expected).every(([name, value]) => isDeepStrictEqual(message[name], value));
    const found = all.filter(is);
    const shown = all.map((message) => ["topic", ...Object.keys(expected)].map((name) => [name, message[name]]));
    const seen = JSON.stringify(shown.map((fields) => Object.fromEntries(fields)));
    strictEqual(
      found.length, times, `${found.length} instead of ${times} with ${JSON.stringify(expected)}; enqueued were: ${seen}`);
    return found;
  }

  async drain(sink = "default") {
    const output = await this.#run("drain", "--stdout", "--sink", sink);
    const lines = output.split("\n").filter((line) => line !== "");
    return lines.map((line) => JSON.parse(line)).filter((message) => this.#isNew(message));
  }

  #isNew({ message_id }) {
    return message_id >= this.#first && !this.#older.has(message_id);
  }

  async #run(...args) {
    const kept = Object.entries(process.env).filter(([name]) => !FOREIGN.test(name));
    const env = { ...Object.fromEntries(kept), DATABASE_URL: this.databaseUrl, POSTRIDER_SCHEMA: this.schema };
    const program = process.env.POSTRIDER ?? "postrider";
    const { stdout } = await promisify(execFile)(program, args, { env, maxBuffer: MOST_OUTPUT_BYTES });
    return stdout;
  }
}
