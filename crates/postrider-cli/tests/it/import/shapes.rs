//! Tables of other designs, as their own projects make them, each with rows in every state that it knows, and what an import
//! has to make of them. Times and ids are fixed, so that the answers are.

/// One design.
pub(super) struct Shape {
    /// The arguments that choose its mapping.
    pub(super) from: &'static [&'static str],
    /// Its tables and rows.
    pub(super) tables: &'static str,
    /// Pending, dead and delivered messages that the rows become.
    pub(super) becomes: [u64; 3],
    /// Rows that a worker holds.
    pub(super) claimed: u64,
    /// Every imported row: key, outcome, topic, lane, number, attempts, priority, dedupe key, error, content.
    pub(super) rows: &'static [&'static str],
}

pub(super) const SHAPES: &[Shape] = &[
    Shape {
        from: &["--from", "supabase-outbox"],
        tables: "create table outbox (id uuid primary key default gen_random_uuid(), tenant_id uuid, topic text not null, \
                 payload jsonb not null, created_at timestamptz not null default now(), processing_token uuid, \
                 delivered_at timestamptz, attempts int); \
                 insert into outbox (id, tenant_id, topic, payload, processing_token, delivered_at, attempts) values \
                 ('a0000000-0000-4000-8000-000000000001', null, 'user.created', '{\"n\": 1}', null, null, null), \
                 ('a0000000-0000-4000-8000-000000000002', 'b0000000-0000-4000-8000-000000000001', 'user.created', '{\"n\": 2}', gen_random_uuid(), null, 2), \
                 ('a0000000-0000-4000-8000-000000000003', null, 'user.deleted', '{\"n\": 3}', null, now(), 1)",
        becomes: [2, 0, 1],
        claimed: 1,
        rows: &[
            "a0000000-0000-4000-8000-000000000001|pending|user.created|||0|0|||{\"n\": 1}",
            "a0000000-0000-4000-8000-000000000002|pending|user.created|||2|0|||{\"n\": 2}",
            "a0000000-0000-4000-8000-000000000003|delivered|user.deleted|||1|0|||{\"n\": 3}",
        ],
    },
    Shape {
        from: &["--from", "payment-outbox-pending"],
        tables: "create type outbox_attempt_state as enum ('DISPATCHING', 'DISPATCHED', 'RETRYABLE', 'FAILED', 'ZOMBIE_REQUEUE'); \
                 create table payment_outbox_pending (outbox_id uuid primary key, instruction_id text not null, \
                 participant_id text not null, sequence_id bigint not null, idempotency_key text not null, rail_type text not null, \
                 payload jsonb not null, attempt_count int not null default 0, next_attempt_at timestamptz not null default now(), \
                 created_at timestamptz not null default now(), unique (participant_id, sequence_id), \
                 unique (instruction_id, idempotency_key)); \
                 create table payment_outbox_attempts (attempt_id uuid primary key default gen_random_uuid(), outbox_id uuid not null, \
                 instruction_id text not null, participant_id text not null, sequence_id bigint not null, idempotency_key text not null, \
                 rail_type text not null, payload jsonb not null, attempt_no int not null, state outbox_attempt_state not null, \
                 claimed_at timestamptz not null default now(), completed_at timestamptz, rail_reference text, rail_code text, \
                 error_code text, error_message text, latency_ms int, created_at timestamptz not null default now(), \
                 unique (outbox_id, attempt_no)); \
                 insert into payment_outbox_pending (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_count) values \
                 ('a0000000-0000-4000-8000-000000000004', 'i4', 'bank-1', 4, 'k', 'sepa', '4', 0), \
                 ('a0000000-0000-4000-8000-000000000003', 'i3', 'bank-1', 3, 'k', 'sepa', '3', 1); \
                 insert into payment_outbox_attempts (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no, state, error_code, error_message) values \
                 ('a0000000-0000-4000-8000-000000000001', 'i1', 'bank-1', 1, 'k', 'sepa', '1', 1, 'DISPATCHING', null, null), \
                 ('a0000000-0000-4000-8000-000000000001', 'i1', 'bank-1', 1, 'k', 'sepa', '1', 2, 'DISPATCHED', null, null), \
                 ('a0000000-0000-4000-8000-000000000002', 'i2', 'bank-1', 2, 'k', 'sepa', '2', 1, 'DISPATCHING', null, null), \
                 ('a0000000-0000-4000-8000-000000000003', 'i3', 'bank-1', 3, 'k', 'sepa', '3', 1, 'DISPATCHING', null, null), \
                 ('a0000000-0000-4000-8000-000000000003', 'i3', 'bank-1', 3, 'k', 'sepa', '3', 2, 'RETRYABLE', 'TIMEOUT', 'no answer'), \
                 ('a0000000-0000-4000-8000-000000000005', 'i5', 'bank-2', 1, 'k', 'instant', '5', 1, 'DISPATCHING', null, null), \
                 ('a0000000-0000-4000-8000-000000000005', 'i5', 'bank-2', 1, 'k', 'instant', '5', 2, 'FAILED', 'AC01', 'no such account'), \
                 ('a0000000-0000-4000-8000-000000000006', 'i6', 'bank-2', 2, 'k', 'instant', '6', 1, 'DISPATCHING', null, null), \
                 ('a0000000-0000-4000-8000-000000000006', 'i6', 'bank-2', 2, 'k', 'instant', '6', 2, 'RETRYABLE', 'TIMEOUT', 'crashed before the requeue')",
        becomes: [4, 1, 1],
        claimed: 1,
        rows: &[
            "a0000000-0000-4000-8000-000000000001|delivered|sepa|bank-1|1|1|0|i1/k||1",
            "a0000000-0000-4000-8000-000000000002|pending|sepa|bank-1|2|1|0|i2/k||2",
            "a0000000-0000-4000-8000-000000000003|pending|sepa|bank-1|3|1|0|i3/k|TIMEOUT no answer|3",
            "a0000000-0000-4000-8000-000000000004|pending|sepa|bank-1|4|0|0|i4/k||4",
            "a0000000-0000-4000-8000-000000000005|dead|instant|bank-2|1|1|0|i5/k|AC01 no such account|5",
            "a0000000-0000-4000-8000-000000000006|pending|instant|bank-2|2|1|0|i6/k|TIMEOUT crashed before the requeue|6",
        ],
    },
    Shape {
        from: &["--from", "modkit-outbox-events"],
        tables: "create table modkit_outbox_events (id uuid primary key, namespace text not null, topic text not null, tenant_id uuid, \
                 dedupe_key text, payload jsonb not null, status text not null, attempts int not null default 0, \
                 next_attempt_at timestamptz not null default now(), locked_by uuid, locked_until timestamptz, last_error text, \
                 created_at timestamptz not null default now(), updated_at timestamptz not null default now()); \
                 insert into modkit_outbox_events (id, namespace, topic, tenant_id, dedupe_key, payload, status, attempts, locked_until, last_error) values \
                 ('a0000000-0000-4000-8000-000000000001', 'chat', 'usage', 'b0000000-0000-4000-8000-000000000001', 'b0000000-0000-4000-8000-000000000001/1', '1', 'pending', 0, null, null), \
                 ('a0000000-0000-4000-8000-000000000002', 'chat', 'usage', null, 'two', '2', 'processing', 1, now() + interval '1 hour', null), \
                 ('a0000000-0000-4000-8000-000000000003', 'chat', 'usage', null, 'three', '3', 'processing', 2, now() - interval '1 hour', 'away'), \
                 ('a0000000-0000-4000-8000-000000000004', 'chat', 'usage', null, 'four', '4', 'delivered', 1, null, null), \
                 ('a0000000-0000-4000-8000-000000000005', 'chat', 'usage', null, null, '5', 'dead', 3, null, 'gone')",
        becomes: [3, 1, 1],
        claimed: 1,
        rows: &[
            "a0000000-0000-4000-8000-000000000001|pending|usage|||0|0|b0000000-0000-4000-8000-000000000001/1||1",
            "a0000000-0000-4000-8000-000000000002|pending|usage|||1|0|two||2",
            "a0000000-0000-4000-8000-000000000003|pending|usage|||2|0|three| away|3",
            "a0000000-0000-4000-8000-000000000004|delivered|usage|||1|0|four||4",
            "a0000000-0000-4000-8000-000000000005|dead|usage|||3|0|| gone|5",
        ],
    },
    Shape {
        from: &["--from", "sync-outbox"],
        tables: "create table sync_outbox (id uuid primary key, tenant_id text, event_type text not null, status text not null, \
                 priority int not null default 0, payload_json jsonb not null, occurred_at timestamptz not null default now(), \
                 next_attempt_at timestamptz not null default now(), claimed_by text, claimed_at timestamptz, \
                 lease_expires_at timestamptz, attempt_count int not null default 0, last_attempt_at timestamptz, \
                 last_error_code text, last_error_message text, failed_at timestamptz, dlq_reason text, payload_size_bytes int); \
                 insert into sync_outbox (id, tenant_id, event_type, status, priority, payload_json, lease_expires_at, attempt_count, last_error_code, last_error_message, dlq_reason) values \
                 ('a0000000-0000-4000-8000-000000000001', 'tenant-1', 'test.event', 'pending', 5, '1', null, 0, null, null, null), \
                 ('a0000000-0000-4000-8000-000000000002', null, 'test.event', 'claimed', 0, '2', now() + interval '1 hour', 1, null, null, null), \
                 ('a0000000-0000-4000-8000-000000000003', null, 'test.event', 'sending', 0, '3', now() - interval '1 hour', 2, null, null, null), \
                 ('a0000000-0000-4000-8000-000000000004', null, 'test.event', 'acked', 0, '4', null, 1, null, null, null), \
                 ('a0000000-0000-4000-8000-000000000005', null, 'test.event', 'dlq', 0, '5', null, 10, 'HTTP_500', 'Internal Server Error', 'MAX_ATTEMPTS_EXCEEDED')",
        becomes: [3, 1, 1],
        claimed: 1,
        rows: &[
            "a0000000-0000-4000-8000-000000000001|pending|test.event|||0|5|||1",
            "a0000000-0000-4000-8000-000000000002|pending|test.event|||1|0|||2",
            "a0000000-0000-4000-8000-000000000003|pending|test.event|||2|0|||3",
            "a0000000-0000-4000-8000-000000000004|delivered|test.event|||1|0|||4",
            "a0000000-0000-4000-8000-000000000005|dead|test.event|||10|0||HTTP_500 Internal Server Error|5",
        ],
    },
    Shape {
        from: &["--from", "debezium", "--table", "events.\"outbox event\""],
        tables: "create schema events; \
                 create table events.\"outbox event\" (id uuid primary key, aggregatetype varchar(255) not null, \
                 aggregateid varchar(255) not null, type varchar(255) not null, payload varchar(4096), timestamp timestamp not null); \
                 insert into events.\"outbox event\" values \
                 ('a0000000-0000-4000-8000-000000000003', 'Order', '7', 'OrderCreated', '{\"id\": 7}', '2026-01-01 10:00'), \
                 ('a0000000-0000-4000-8000-000000000001', 'Order', '7', 'OrderPaid', '{\"id\": 7}', '2026-01-01 11:00'), \
                 ('a0000000-0000-4000-8000-000000000002', 'Order', '8', 'OrderDeleted', null, '2026-01-01 12:00')",
        becomes: [3, 0, 0],
        claimed: 0,
        rows: &[
            "a0000000-0000-4000-8000-000000000001|pending|outbox.event.Order|Order/7|2|0|0|||{\"id\": 7}",
            "a0000000-0000-4000-8000-000000000002|pending|outbox.event.Order|Order/8|1|0|0|||null",
            "a0000000-0000-4000-8000-000000000003|pending|outbox.event.Order|Order/7|1|0|0|||{\"id\": 7}",
        ],
    },
    Shape {
        from: &["--from", "masstransit"],
        tables: "create table \"OutboxState\" (\"OutboxId\" uuid primary key, \"LockId\" uuid not null, \"RowVersion\" bytea, \
                 \"Created\" timestamptz not null, \"Delivered\" timestamptz, \"LastSequenceNumber\" bigint); \
                 create table \"OutboxMessage\" (\"SequenceNumber\" bigint generated by default as identity primary key, \
                 \"EnqueueTime\" timestamptz, \"SentTime\" timestamptz not null, \"Headers\" text, \"Properties\" text, \
                 \"InboxMessageId\" uuid, \"InboxConsumerId\" uuid, \"OutboxId\" uuid, \"MessageId\" uuid not null, \
                 \"ContentType\" varchar(256) not null, \"MessageType\" text not null, \"Body\" text not null, \"ConversationId\" uuid, \
                 \"CorrelationId\" uuid, \"InitiatorId\" uuid, \"RequestId\" uuid, \"SourceAddress\" varchar(256), \
                 \"DestinationAddress\" varchar(256), \"ResponseAddress\" varchar(256), \"FaultAddress\" varchar(256), \
                 \"ExpirationTime\" timestamptz); \
                 insert into \"OutboxState\" values ('c0000000-0000-4000-8000-000000000001', gen_random_uuid(), null, now(), null, 1); \
                 insert into \"OutboxMessage\" (\"SequenceNumber\", \"SentTime\", \"Headers\", \"OutboxId\", \"MessageId\", \"ContentType\", \"MessageType\", \"Body\", \"DestinationAddress\") values \
                 (1, now(), null, 'c0000000-0000-4000-8000-000000000001', gen_random_uuid(), 'application/vnd.masstransit+json', 'urn:message:Shop:OrderPlaced', '{\"message\": 1}', null), \
                 (2, now(), '{\"a\": 1}', 'c0000000-0000-4000-8000-000000000001', gen_random_uuid(), 'application/vnd.masstransit+json', 'urn:message:Shop:OrderPlaced;urn:message:Shop:Event', '{\"message\": 2}', 'queue:x')",
        becomes: [1, 0, 1],
        claimed: 0,
        rows: &[
            "1|delivered|urn:message:Shop:OrderPlaced|c0000000-0000-4000-8000-000000000001|1|1|0|||{\"message\": 1}",
            "2|pending|urn:message:Shop:OrderPlaced|c0000000-0000-4000-8000-000000000001|2|0|0|||{\"message\": 2}",
        ],
    },
    Shape {
        from: &["--from", "wolverine"],
        tables: "create table wolverine_outgoing_envelopes (id uuid primary key, owner_id int not null, destination varchar not null, \
                 deliver_by timestamptz, body bytea not null, attempts int default 0, message_type varchar not null); \
                 insert into wolverine_outgoing_envelopes values \
                 ('a0000000-0000-4000-8000-000000000001', 0, 'tcp://x', null, 'one', 0, 'Shop.OrderPlaced'), \
                 ('a0000000-0000-4000-8000-000000000002', 5, 'tcp://x', null, 'two', 2, 'Shop.OrderPlaced')",
        becomes: [2, 0, 0],
        claimed: 1,
        rows: &[
            "a0000000-0000-4000-8000-000000000001|pending|Shop.OrderPlaced|||0|0|||one",
            "a0000000-0000-4000-8000-000000000002|pending|Shop.OrderPlaced|||2|0|||two",
        ],
    },
    Shape {
        from: &["--from", "cap"],
        tables: "create schema cap; \
                 create table cap.published (\"Id\" bigint primary key not null, \"Version\" varchar(20) not null, \"Name\" varchar(200) not null, \
                 \"Content\" text, \"Retries\" int not null, \"Added\" timestamp not null, \"ExpiresAt\" timestamp, \"StatusName\" varchar(50) not null); \
                 insert into cap.published values \
                 (1, 'v1', 'order.placed', '{\"Headers\": {\"cap-msg-id\": \"1\"}, \"Value\": {\"n\": 1}}', 0, now(), null, 'Scheduled'), \
                 (2, 'v1', 'order.placed', '{\"Headers\": {\"cap-msg-id\": \"2\"}, \"Value\": 2}', 0, now(), now(), 'Succeeded'), \
                 (3, 'v1', 'order.placed', '{\"Headers\": {\"cap-msg-id\": \"3\"}, \"Value\": 3}', 4, now(), now(), 'Failed'), \
                 (4, 'v1', 'order.placed', '{\"Headers\": {\"cap-exception\": \"boom\"}, \"Value\": 4}', 50, now(), now(), 'Failed'), \
                 (5, 'v1', 'order.placed', '{\"Headers\": {}, \"Value\": 5}', 0, now(), now() + interval '1 day', 'Delayed'), \
                 (6, 'v1', 'order.placed', '{\"Headers\": {}, \"Value\": 6}', 0, now(), now(), 'Queued')",
        becomes: [4, 1, 1],
        claimed: 1,
        rows: &[
            "1|pending|order.placed|||0|0|||{\"n\": 1}",
            "2|delivered|order.placed|||1|0|||2",
            "3|pending|order.placed|||4|0|||3",
            "4|dead|order.placed|||50|0|| boom|4",
            "5|pending|order.placed|||0|0|||5",
            "6|pending|order.placed|||0|0|||6",
        ],
    },
    Shape {
        from: &["--from", "gruelbox"],
        tables: "create table TXNO_OUTBOX (id varchar(36) primary key, invocation text, nextAttemptTime timestamp(6), attempts int, \
                 blocked boolean, version int, uniqueRequestId varchar(250) unique, processed boolean, lastAttemptTime timestamp(6), \
                 topic varchar(250) not null default '*', seq bigint); \
                 insert into TXNO_OUTBOX values \
                 ('a1', '{\"c\": \"Mailer\", \"m\": \"send\", \"p\": [], \"a\": []}', now(), 0, false, 0, 'r1', false, null, '*', null), \
                 ('a2', '{\"c\": \"Mailer\", \"m\": \"send\", \"p\": [], \"a\": []}', now(), 1, false, 0, 'r2', true, now(), '*', null), \
                 ('a3', '{\"c\": \"Mailer\", \"m\": \"send\", \"p\": [], \"a\": []}', now(), 5, true, 0, null, false, now(), 'customer-1', 1), \
                 ('a4', '{\"c\": \"Mailer\", \"m\": \"send\", \"p\": [], \"a\": []}', now(), 0, false, 0, null, false, null, 'customer-1', 2)",
        becomes: [2, 1, 1],
        claimed: 0,
        rows: &[
            "a1|pending|Mailer.send|||0|0|r1||{\"a\": [], \"c\": \"Mailer\", \"m\": \"send\", \"p\": []}",
            "a2|delivered|Mailer.send|||1|0|r2||{\"a\": [], \"c\": \"Mailer\", \"m\": \"send\", \"p\": []}",
            "a3|dead|Mailer.send|customer-1|1|5|0|||{\"a\": [], \"c\": \"Mailer\", \"m\": \"send\", \"p\": []}",
            "a4|pending|Mailer.send|customer-1|2|0|0|||{\"a\": [], \"c\": \"Mailer\", \"m\": \"send\", \"p\": []}",
        ],
    },
    Shape {
        from: &["--mapping", concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/migrating/mappings/pg-boss.toml")],
        tables: "create schema pgboss; \
                 create type pgboss.job_state as enum ('created', 'retry', 'active', 'completed', 'cancelled', 'failed'); \
                 create table pgboss.job (id uuid not null default gen_random_uuid(), name text not null, priority integer not null default 0, \
                 data jsonb, state pgboss.job_state not null default 'created', retry_limit integer not null default 2, \
                 retry_count integer not null default 0, retry_delay integer not null default 0, retry_backoff boolean not null default false, \
                 start_after timestamptz not null default now(), started_on timestamptz, singleton_key text, singleton_on timestamp, \
                 expire_in interval not null default interval '15 minutes', created_on timestamptz not null default now(), \
                 completed_on timestamptz, keep_until timestamptz not null default now() + interval '14 days', output jsonb, \
                 dead_letter text, policy text, primary key (name, id)); \
                 insert into pgboss.job (id, name, data, state, priority, retry_count, output) values \
                 ('a0000000-0000-4000-8000-000000000001', 'mail', '1', 'created', 3, 0, null), \
                 ('a0000000-0000-4000-8000-000000000002', 'mail', '2', 'retry', 0, 1, null), \
                 ('a0000000-0000-4000-8000-000000000003', 'mail', '3', 'active', 0, 1, null), \
                 ('a0000000-0000-4000-8000-000000000004', 'mail', '4', 'completed', 0, 0, null), \
                 ('a0000000-0000-4000-8000-000000000005', 'mail', '5', 'failed', 0, 2, '{\"message\": \"boom\"}'), \
                 ('a0000000-0000-4000-8000-000000000006', 'mail', '6', 'cancelled', 0, 0, null)",
        becomes: [3, 1, 1],
        claimed: 1,
        rows: &[
            "mail/a0000000-0000-4000-8000-000000000001|pending|mail|||0|3|||1",
            "mail/a0000000-0000-4000-8000-000000000002|pending|mail|||1|0|||2",
            "mail/a0000000-0000-4000-8000-000000000003|pending|mail|||2|0|||3",
            "mail/a0000000-0000-4000-8000-000000000004|delivered|mail|||1|0|||4",
            "mail/a0000000-0000-4000-8000-000000000005|dead|mail|||3|0|| boom|5",
        ],
    },
    Shape {
        from: &["--mapping", concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/migrating/mappings/river.toml")],
        tables: "create type river_job_state as enum ('available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled'); \
                 create table river_job (id bigserial primary key, state river_job_state not null default 'available', attempt smallint not null default 0, \
                 max_attempts smallint not null default 25, attempted_at timestamptz, created_at timestamptz not null default now(), finalized_at timestamptz, \
                 scheduled_at timestamptz not null default now(), priority smallint not null default 1, args jsonb not null, attempted_by text[], \
                 errors jsonb[], kind text not null, metadata jsonb not null default '{}', queue text not null default 'default', tags varchar(255)[]); \
                 insert into river_job (state, attempt, priority, args, kind, errors, finalized_at) values \
                 ('available', 0, 1, '1', 'mail', null, null), ('retryable', 2, 4, '2', 'mail', array['{\"error\": \"boom\"}']::jsonb[], null), \
                 ('running', 1, 1, '3', 'mail', null, null), ('completed', 1, 1, '4', 'mail', null, now()), \
                 ('discarded', 25, 1, '5', 'mail', array['{\"error\": \"first\"}', '{\"error\": \"last\"}']::jsonb[], now()), ('cancelled', 0, 1, '6', 'mail', null, now())",
        becomes: [3, 1, 1],
        claimed: 1,
        rows: &[
            "1|pending|mail|||0|0|||1",
            "2|pending|mail|||2|-3|| boom|2",
            "3|pending|mail|||1|0|||3",
            "4|delivered|mail|||1|0|||4",
            "5|dead|mail|||25|0|| last|5",
        ],
    },
    Shape {
        from: &["--mapping", concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/migrating/mappings/pgmq.toml")],
        tables: "create schema pgmq; \
                 create table pgmq.q_orders (msg_id bigint primary key generated by default as identity, read_ct int default 0 not null, \
                 enqueued_at timestamptz default now() not null, vt timestamptz not null, message jsonb, headers jsonb); \
                 create table pgmq.a_orders (msg_id bigint primary key, read_ct int default 0 not null, \
                 enqueued_at timestamptz default now() not null, archived_at timestamptz default now() not null, vt timestamptz not null, \
                 message jsonb, headers jsonb); \
                 insert into pgmq.q_orders (read_ct, vt, message, headers) values \
                 (0, now(), '1', null), (1, now() + interval '1 hour', '2', null), \
                 (2, now() - interval '1 hour', '3', '{\"x-pgmq-group\": \"g\", \"h\": \"v\"}'), \
                 (0, now() + interval '1 hour', '4', '{\"x-pgmq-group\": \"g\"}'); \
                 insert into pgmq.a_orders (msg_id, read_ct, vt, message) values (9, 1, now(), '9')",
        becomes: [4, 0, 1],
        claimed: 1,
        rows: &[
            "1|pending|orders|||0|0|||1",
            "2|pending|orders|||1|0|||2",
            "3|pending|orders|g|1|2|0|||3",
            "4|pending|orders|g|2|0|0|||4",
            "9|delivered|orders|||1|0|||9",
        ],
    },
    Shape {
        from: &["--mapping", concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/migrating/mappings/oban.toml")],
        tables: "create type oban_job_state as enum ('available', 'suspended', 'scheduled', 'executing', 'retryable', 'completed', 'discarded', 'cancelled'); \
                 create table oban_jobs (id bigserial primary key, state oban_job_state not null default 'available', \
                 queue text not null default 'default', worker text not null, args jsonb not null default '{}', errors jsonb[] not null default '{}', \
                 attempt int not null default 0, max_attempts int not null default 20, inserted_at timestamp not null default timezone('UTC', now()), \
                 scheduled_at timestamp not null default timezone('UTC', now()), attempted_at timestamp, completed_at timestamp, attempted_by text[], \
                 discarded_at timestamp, priority int not null default 0, tags text[] default '{}', meta jsonb default '{}', cancelled_at timestamp); \
                 insert into oban_jobs (state, worker, args, attempt, priority, errors) values \
                 ('available', 'Mailer', '1', 0, 0, '{}'), ('executing', 'Mailer', '2', 1, 3, '{}'), \
                 ('retryable', 'Mailer', '3', 2, 0, array['{\"error\": \"boom\"}']::jsonb[]), ('completed', 'Mailer', '4', 1, 0, '{}'), \
                 ('discarded', 'Mailer', '5', 20, 0, array['{\"error\": \"first\"}', '{\"error\": \"last\"}']::jsonb[]), \
                 ('cancelled', 'Mailer', '6', 0, 0, '{}'), ('suspended', 'Mailer', '7', 0, 0, '{}')",
        becomes: [3, 1, 1],
        claimed: 1,
        rows: &[
            "1|pending|Mailer|||0|0|||1",
            "2|pending|Mailer|||1|-3|||2",
            "3|pending|Mailer|||2|0|| boom|3",
            "4|delivered|Mailer|||1|0|||4",
            "5|dead|Mailer|||20|0|| last|5",
        ],
    },
    Shape {
        from: &[
            "--mapping",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/migrating/mappings/graphile-worker.toml"),
        ],
        tables: "create schema graphile_worker; \
                 create table graphile_worker._private_job_queues (id int primary key generated always as identity, \
                 queue_name text not null unique, locked_at timestamptz, locked_by text); \
                 create table graphile_worker._private_tasks (id int primary key generated always as identity, identifier text not null unique); \
                 create table graphile_worker._private_jobs (id bigint primary key generated by default as identity, job_queue_id int, \
                 task_id int not null, payload json default '{}'::json not null, priority smallint default 0 not null, \
                 run_at timestamptz default now() not null, attempts smallint default 0 not null, max_attempts smallint default 25 not null, \
                 last_error text, created_at timestamptz default now() not null, updated_at timestamptz default now() not null, key text unique, \
                 locked_at timestamptz, locked_by text, revision int default 0 not null, flags jsonb); \
                 insert into graphile_worker._private_tasks (identifier) values ('mail'); \
                 insert into graphile_worker._private_job_queues (queue_name) values ('customer-1'); \
                 insert into graphile_worker._private_jobs (job_queue_id, task_id, payload, priority, attempts, last_error, locked_at) values \
                 (null, 1, '1', -5, 0, null, null), (1, 1, '2', 0, 1, 'boom', null), (1, 1, '3', 0, 1, null, now()), \
                 (null, 1, '4', 0, 25, 'boom', null)",
        becomes: [3, 1, 0],
        claimed: 1,
        rows: &[
            "1|pending|mail|||0|5|||1",
            "2|pending|mail|customer-1|1|1|0|| boom|2",
            "3|pending|mail|customer-1|2|1|0|||3",
            "4|dead|mail|||25|0|| boom|4",
        ],
    },
];
