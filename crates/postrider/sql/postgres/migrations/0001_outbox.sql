-- The tables of the outbox: message -> delivery -> attempt, and what stands beside them.
-- Applied once by `postrider migrate up`; frozen once released. Functions and views are not here: they are re-applied
-- by hash from ../functions and ../views. :"schema" is the quoted schema name (psql's own notation, so that this file
-- also runs as `psql -v schema=outbox -f …`).
--
-- Text columns that are compared or indexed use collate "C": byte order is the same on every server and the cheapest.
-- message, delivery and attempt have no CHECK constraints: PostgreSQL builds each from text in every statement, and that was half
-- of what an enqueue cost. Only the functions write there. What holds for their rows is in
-- crates/postrider-testkit/src/row_checks.sql, and every database of the tests has it as constraints.

create type :"schema".attempt_state as enum ('DISPATCHED', 'RETRYABLE', 'FAILED', 'ZOMBIE_REQUEUE', 'CANCELLED');
comment on type :"schema".attempt_state is
    'How an attempt ended: delivered; failed and to be tried again; failed for good; its lease ran out; or an operator cancelled the delivery.';

-- One row: what an operator may tune, so that no function carries a literal duration.
create table :"schema".setting (
    only_row          boolean  not null default true,
    partition_width   interval not null default '1 day',
    partitions_ahead  integer  not null default 7,
    retention         interval default '7 days',
    dedupe_window     interval default '30 days',
    status_window     interval not null default '5 minutes',
    prune_lock_wait   interval not null default '250 milliseconds',
    abandoned_for     interval not null default '1 day',
    functions_hash    text,
    role_prefix       text,
    constraint setting_pk primary key (only_row),
    constraint setting_is_one_row check (only_row),
    constraint setting_partition_width_is_whole_hours
        check (partition_width >= '1 hour' and mod(extract(epoch from partition_width)::bigint, 3600) = 0),
    constraint setting_partitions_ahead_is_bounded check (partitions_ahead between 1 and 1000),
    constraint setting_durations_are_positive
        check (retention > '0' and dedupe_window > '0' and status_window > '0' and prune_lock_wait > '0'
               and abandoned_for > '0')
);
insert into :"schema".setting default values;
comment on table :"schema".setting is 'One row: durations and bounds that the functions read, and what is installed.';
comment on column :"schema".setting.retention is 'How long history is kept after its delivery ended; null: for ever.';
comment on column :"schema".setting.dedupe_window is 'How long a dedupe key is known; null: for ever.';

-- What the producer said. Written once, never changed. The id is a UUIDv7, so a range of ids is a range of time and
-- retention is the drop of a partition.
create table :"schema".message (
    id            uuid        not null,
    occurred_at   timestamptz not null,
    priority      integer     not null,
    content_bytes integer     not null,
    sequence_id   bigint,
    tenant_id     text collate "C",
    namespace     text collate "C" not null,
    topic         text collate "C" not null,
    lane          text collate "C",
    dedupe_key    text collate "C",
    content_type  text,
    headers       jsonb,
    payload       jsonb,
    body          bytea,
    constraint message_pk primary key (id)
) partition by range (id);
comment on table :"schema".message is 'What a producer said: written once, never changed, dropped by partition.';
comment on column :"schema".message.content_bytes is
    'How long payload or body is as it is sent. Stored, jsonb may be a fraction of that: 1e131071 is a few bytes.';

-- One message on its way to one sink: the hot table. Rows are tiny and gone when the delivery ends.
--
-- Column order is the write-ahead log's: what a claim changes stands last, so the update record carries only the tail.
-- fillfactor: a claim makes the row about 1.8 times as long; old and new version must fit one page, or the update is
-- not HOT (no index is on a lease column for the same reason).
create table :"schema".delivery (
    message_id        uuid        not null,
    occurred_at       timestamptz not null,
    due_at            timestamptz not null,
    priority          integer     not null,
    size_bytes        integer     not null,
    sequence_id       bigint,
    tenant_id         text collate "C",
    sink              text collate "C" not null,
    lane              text collate "C",
    attempt_no        integer     not null default 0,
    attempt_count     integer     not null default 0,
    max_attempts      integer,
    claimed_at        timestamptz,
    lease_expires_at  timestamptz,
    lease_token       uuid,
    lane_tail         bigint,
    claimed_by        text collate "C",
    constraint delivery_pk primary key (message_id, sink)
) with (
    fillfactor = 35,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05
);
comment on table :"schema".delivery is
    'One message on its way to one sink: pending or leased. due_at = infinity is a dead lane head that parks its lane.';
comment on column :"schema".delivery.lane_tail is
    'Last sequence number handed out with this one: while a lease in (sequence_id, lane_tail] lives, the lane is busy.';
comment on column :"schema".delivery.occurred_at is
    'The message''s: how old the oldest pending one is, is asked every few seconds and must not read every message.';
comment on column :"schema".delivery.size_bytes is 'Content and headers as they are sent: a claim is bounded by it.';

-- Deliveries without a lane: priority first, then due time. Within one priority only due rows are read.
-- No two keys are equal, so looking for duplicates before a page is split is in vain.
create index delivery_due on :"schema".delivery (sink, priority desc, due_at, message_id)
    with (deduplicate_items = off) where lane is null;
-- The indexes of tenants spell their predicates in another way: a statement that uses these words can be served by no
-- other index, whatever the planner thought of the table when it made the plan that a session keeps.
create index delivery_due_of_tenant on :"schema".delivery (sink, tenant_id, priority desc, due_at, message_id)
    where num_nonnulls(lane) = 0 and num_nonnulls(tenant_id) = 1;
-- Lanes: the claim hops from lane head to lane head.
create unique index delivery_lane on :"schema".delivery (sink, lane, sequence_id)
    where lane is not null;
create index delivery_lane_of_tenant on :"schema".delivery (sink, tenant_id, lane, sequence_id)
    where num_nonnulls(lane) = 1 and num_nonnulls(tenant_id) = 1;

-- One try and its outcome. Append-only.
create table :"schema".attempt (
    message_id     uuid        not null,
    claimed_at     timestamptz not null,
    completed_at   timestamptz not null,
    attempt_no     integer     not null,
    latency_ms     integer,
    state          :"schema".attempt_state not null,
    sink           text collate "C" not null,
    worker_id      text collate "C" not null,
    code           text,
    reference      text,
    error_code     text,
    error_message  text,
    answer         text,
    constraint attempt_pk primary key (message_id, sink, attempt_no)
) partition by range (message_id);
-- Nearly free to keep: lets the status view read the last minutes only.
create index attempt_completed on :"schema".attempt using brin (completed_at) with (pages_per_range = 32, autosummarize = on);
comment on table :"schema".attempt is 'One try of one delivery and how it ended. Rows can be added, never changed.';
comment on column :"schema".attempt.answer is 'The first part of what the destination answered to a failed attempt.';

-- A delivery that nobody will retry by itself.
create table :"schema".dead_letter (
    message_id     uuid        not null,
    sink           text collate "C" not null,
    died_at        timestamptz not null,
    reason         text        not null,
    priority       integer     not null,
    size_bytes     integer     not null,
    tenant_id      text collate "C",
    lane           text collate "C",
    sequence_id    bigint,
    attempt_no     integer     not null,
    attempt_count  integer     not null,
    parked         boolean     not null,
    error_code     text,
    error_message  text,
    constraint dead_letter_pk primary key (message_id, sink),
    constraint dead_letter_reason_is_known check (reason in ('FAILED', 'ATTEMPTS_EXHAUSTED')),
    constraint dead_letter_lane_has_sequence check ((lane is null) = (sequence_id is null)),
    constraint dead_letter_parks_only_a_lane check (lane is not null or not parked)
);
create index dead_letter_by_time on :"schema".dead_letter (sink, died_at);
comment on table :"schema".dead_letter is 'Deliveries that ended without success, until a person redrives or discards them.';

-- The last number given out in each lane. Bumped inside the producer's transaction.
create table :"schema".lane_sequence (
    lane           text collate "C" not null,
    last_sequence  bigint not null,
    constraint lane_sequence_pk primary key (lane),
    constraint lane_sequence_is_not_negative check (last_sequence >= 0)
) with (fillfactor = 50);
comment on table :"schema".lane_sequence is 'The last sequence number given out in each lane.';

-- Which message a dedupe key stands for, kept for the dedupe window, whatever became of the message. The tenant is part of
-- what is unique, so that nobody takes another's key; it is empty if there is none, for null would never equal null.
create table :"schema".dedupe (
    message_id  uuid not null,
    namespace   text collate "C" not null,
    topic       text collate "C" not null,
    tenant      text collate "C" not null default '',
    dedupe_key  text collate "C" not null,
    constraint dedupe_pk primary key (namespace, topic, tenant, dedupe_key)
);
create index dedupe_by_age on :"schema".dedupe using brin (message_id) with (pages_per_range = 32, autosummarize = on);
comment on table :"schema".dedupe is 'Dedupe keys and the message each stands for.';

-- Where topics go. No matching route: the sink `default`.
create table :"schema".route (
    namespace   text collate "C" not null,
    topic       text collate "C" not null,
    sink        text collate "C" not null,
    -- chr(92) is a backslash, which means something else in databases without standard_conforming_strings.
    topic_like  text collate "C" not null generated always as (
        replace(replace(replace(replace(topic, chr(92), chr(92) || chr(92)), '%', chr(92) || '%'), '_', chr(92) || '_'),
                '*', '%')
    ) stored,
    constraint route_pk primary key (namespace, topic, sink),
    constraint route_is_short_text check (
        namespace <> '' and topic <> '' and sink <> ''
        and octet_length(namespace) <= 255 and octet_length(topic) <= 255 and octet_length(sink) <= 255
    )
);
comment on table :"schema".route is 'Which topics go to which sinks; * stands for any characters.';

create table :"schema".sink (
    name     text collate "C" not null,
    on_dead  text    not null default 'park',
    paused   boolean not null default false,
    constraint sink_pk primary key (name),
    constraint sink_name_is_short_text check (name <> '' and octet_length(name) <= 255),
    constraint sink_on_dead_is_known check (on_dead in ('park', 'skip'))
);
comment on table :"schema".sink is 'What is not default about a sink: paused, and what a dead lane head does to its lane.';

-- Relays that sleep. Producers look here before they NOTIFY. Unlogged: after a crash nobody sleeps, the poll covers it.
create unlogged table :"schema".sleeper (
    worker_id  text collate "C" not null,
    until      timestamptz not null,
    constraint sleeper_pk primary key (worker_id)
);
comment on table :"schema".sleeper is 'Relays that wait for a NOTIFY, each until the time it wakes by itself.';

-- Claims whose worker no longer waits for the answer: one that arrives late is refused. A claim under way writes its token,
-- too, and takes it back before it commits: so an abandon waits for it. Unlogged: a crash ends both.
create unlogged table :"schema".abandoned_claim (
    lease_token   uuid        not null,
    abandoned_at  timestamptz not null,
    constraint abandoned_claim_pk primary key (lease_token)
);
comment on table :"schema".abandoned_claim is 'Tokens of claims that were given up: nothing is leased under them any more.';

-- Locks of the outbox's own: empty tables, locked and never written to (see ../functions/locks.sql).
create table :"schema".lock_partitions ();
create table :"schema".lock_measure ();
create table :"schema".lock_inbox ();
create table :"schema".lock_inbox_snapshots ();
create table :"schema".lock_lanes_0 ();
create table :"schema".lock_lanes_1 ();
create table :"schema".lock_lanes_2 ();
create table :"schema".lock_lanes_3 ();
create table :"schema".lock_lanes_4 ();
create table :"schema".lock_lanes_5 ();
create table :"schema".lock_lanes_6 ();
create table :"schema".lock_lanes_7 ();
create table :"schema".lock_lanes_8 ();
create table :"schema".lock_lanes_9 ();
create table :"schema".lock_lanes_10 ();
create table :"schema".lock_lanes_11 ();
create table :"schema".lock_lanes_12 ();
create table :"schema".lock_lanes_13 ();
create table :"schema".lock_lanes_14 ();
create table :"schema".lock_lanes_15 ();
comment on table :"schema".lock_partitions is 'Empty. Its lock: who makes or drops partitions.';
comment on table :"schema".lock_measure is 'Empty. Its lock: who takes a sample.';
comment on table :"schema".lock_inbox is 'Empty. Its lock: who prunes the inbox.';
comment on table :"schema".lock_inbox_snapshots is 'Empty. Its lock: consumers with a snapshot of their own, or a prune of the inbox.';
comment on table :"schema".lock_lanes_0 is 'Empty. Its lock, like those of its fifteen neighbours: claims from lanes, or who adds to their front.';

-- Guards.

create function :"schema".refuse_change() returns trigger
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
as $$
begin
    raise exception '% on %.% is refused: its rows are written once', tg_op, tg_table_schema, tg_table_name
        using errcode = 'P0001',
              hint = 'Messages, attempts and the audit are a record. The functions add to it, nothing changes it.';
end
$$;
comment on function :"schema".refuse_change() is 'Trigger: messages, attempts and the audit are written once.';

create function :"schema".refuse_truncate() returns trigger
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
as $$
begin
    raise exception 'TRUNCATE on %.% is refused', tg_table_schema, tg_table_name
        using errcode = 'P0001', hint = 'Use prune() for what is delivered and discard() for dead letters.';
end
$$;
comment on function :"schema".refuse_truncate() is 'Trigger: nobody truncates the outbox, the owner included.';

create trigger attempt_is_append_only before update or delete on :"schema".attempt
    for each row execute function :"schema".refuse_change();
create trigger message_is_written_once before update on :"schema".message
    for each row execute function :"schema".refuse_change();
create trigger attempt_is_not_truncated before truncate on :"schema".attempt
    for each statement execute function :"schema".refuse_truncate();
create trigger message_is_not_truncated before truncate on :"schema".message
    for each statement execute function :"schema".refuse_truncate();
create trigger delivery_is_not_truncated before truncate on :"schema".delivery
    for each statement execute function :"schema".refuse_truncate();
create trigger dead_letter_is_not_truncated before truncate on :"schema".dead_letter
    for each statement execute function :"schema".refuse_truncate();
create trigger lane_sequence_is_not_truncated before truncate on :"schema".lane_sequence
    for each statement execute function :"schema".refuse_truncate();
create trigger dedupe_is_not_truncated before truncate on :"schema".dedupe
    for each statement execute function :"schema".refuse_truncate();

-- The net under the partitions: an outbox whose keeper has been away for weeks must still accept messages.
create table :"schema".message_rest partition of :"schema".message default;
create table :"schema".attempt_rest partition of :"schema".attempt default;
create trigger attempt_is_not_truncated before truncate on :"schema".attempt_rest
    for each statement execute function :"schema".refuse_truncate();
create trigger message_is_not_truncated before truncate on :"schema".message_rest
    for each statement execute function :"schema".refuse_truncate();

-- What claim hands out: the message and the terms of its lease.
create type :"schema".claimed as (
    message_id        uuid,
    sink              text,
    namespace         text,
    topic             text,
    tenant_id         text collate "C",
    lane              text,
    sequence_id       bigint,
    dedupe_key        text,
    priority          integer,
    headers           jsonb,
    payload           jsonb,
    body              bytea,
    content_type      text,
    occurred_at       timestamptz,
    due_at            timestamptz,
    attempt_no        integer,
    attempt_count     integer,
    lost_leases       integer,
    lease_token       uuid,
    claimed_at        timestamptz,
    lease_expires_at  timestamptz
);
comment on type :"schema".claimed is 'A claimed message: what the producer said, and the lease it is held under.';

-- What complete_many really changed.
create type :"schema".completed as (
    message_id  uuid,
    sink        text,
    attempt_no  integer,
    dead        boolean
);
comment on type :"schema".completed is 'A delivery whose outcome was recorded, the attempt it closed, and whether it died.';

-- What renew really changed.
create type :"schema".renewed as (
    message_id        uuid,
    lease_expires_at  timestamptz
);
comment on type :"schema".renewed is 'A delivery whose lease was renewed, and until when.';
