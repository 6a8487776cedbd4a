/** A client of PostgreSQL as node-postgres has it: a `Client`, or a `Pool`. */
export interface Client {
  query(text: string, values?: unknown[]): Promise<{ rows: any[] }>;
}

/** A row of the view `outbox.messages`. */
export interface Message {
  message_id: string;
  namespace: string;
  topic: string;
  tenant_id: string | null;
  lane: string | null;
  sequence_id: number | null;
  dedupe_key: string | null;
  priority: number;
  headers: Record<string, string> | null;
  payload: unknown;
  content_type: string | null;
  [other: string]: unknown;
}

/** A message as a relay hands it to a sink; what it does not have is left out. */
export interface Delivered extends Partial<Omit<Message, "message_id" | "topic">> {
  message_id: string;
  topic: string;
  attempt_no: number;
}

/** The outbox of one database. Its calls see what was enqueued since the last `start`. */
export class Outbox {
  constructor(options: { databaseUrl: string; client: Client; schema?: string });
  /** Creates the outbox, or brings it up to date. */
  migrate(): Promise<void>;
  /** Forgets the messages that are there. */
  start(): Promise<void>;
  /** The messages in the order of their ids. With the client of a transaction that is still open, its own too. */
  enqueued(client?: Client): Promise<Message[]>;
  /** That many messages (one unless said) have these fields. Returns these messages. */
  assertEnqueued(expected?: Partial<Message>, options?: { client?: Client; times?: number }): Promise<Message[]>;
  /** Delivers what is due for this sink (`default` unless said), to nobody. Returns the messages. */
  drain(sink?: string): Promise<Delivered[]>;
}
