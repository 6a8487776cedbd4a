-- The tables of the outbox in an application's own SQLite file: message -> delivery -> attempt, and what stands beside
-- them. Applied once, by whoever opens the file first; frozen once released. Views and the triggers of `outbox_enqueue`
-- are not here: they are re-applied by hash from ../views.
--
-- Ids are UUIDs as 16 bytes. Times are microseconds since 1970 by SQLite's own clock (which counts milliseconds).
-- 9223372036854775807 as a due time is never: a dead lane head that parks its lane.
-- Lengths are measured in bytes by a cast to blob, which every version of SQLite understands. A rule about what may be null
-- says so itself: what functions say about NULL differs from version to version.

-- One row: what an operator may tune, so that no statement carries a literal duration. Retention and dedupe window: null is
-- for ever.
create table outbox_setting (
    only_row               integer not null default 1,
    retention_seconds      integer default 604800,
    dedupe_window_seconds  integer default 2592000,
    status_window_seconds  integer not null default 300,
    views_hash             text,
    constraint setting_pk primary key (only_row),
    constraint setting_is_one_row check (only_row = 1),
    constraint setting_durations_are_positive
        check (coalesce(retention_seconds, 1) > 0 and coalesce(dedupe_window_seconds, 1) > 0 and status_window_seconds > 0)
) strict;
insert into outbox_setting default values;

-- What the producer said. Written once, never changed. The id is a UUIDv7, so a range of ids is a range of time.
create table outbox_message (
    id            blob    not null,
    enqueued_at   integer not null,
    occurred_at   integer not null,
    priority      integer not null,
    sequence_id   integer,
    tenant_id     text,
    namespace     text    not null,
    topic         text    not null,
    lane          text,
    dedupe_key    text,
    content_type  text,
    headers       text,
    payload       text,
    body          blob,
    constraint message_pk primary key (id),
    constraint message_id_is_a_uuid check (length(id) = 16),
    constraint message_tenant_id_is_short_text
        check (tenant_id is null or (tenant_id <> '' and length(cast(tenant_id as blob)) <= 255)),
    constraint message_has_payload_or_body check ((payload is null) <> (body is null)),
    constraint message_payload_is_json check (payload is null or json_valid(payload)),
    constraint message_content_is_bounded
        check (coalesce(length(cast(payload as blob)), length(body)) <= 16777216),
    constraint message_namespace_is_short_text check (namespace <> '' and length(cast(namespace as blob)) <= 255),
    constraint message_topic_is_short_text check (topic <> '' and length(cast(topic as blob)) <= 255),
    constraint message_lane_is_short_text check (lane is null or (lane <> '' and length(cast(lane as blob)) <= 255)),
    constraint message_dedupe_key_is_short_text
        check (dedupe_key is null or (dedupe_key <> '' and length(cast(dedupe_key as blob)) <= 512)),
    constraint message_content_type_is_short_text
        check (content_type is null or (content_type <> '' and length(cast(content_type as blob)) <= 255)),
    constraint message_priority_is_bounded check (priority between -100 and 100),
    constraint message_lane_has_sequence check ((lane is null) = (sequence_id is null)),
    constraint message_sequence_starts_at_one check (sequence_id is null or sequence_id >= 1),
    constraint message_headers_is_object
        check (headers is null or (json_valid(headers) and json_type(headers) = 'object'
                                   and length(cast(headers as blob)) <= 65536))
) strict;

-- One message on its way to one sink: the hot table. Rows are tiny and gone when the delivery ends.
create table outbox_delivery (
    message_id        blob    not null,
    sink              text    not null,
    occurred_at       integer not null,
    due_at            integer not null,
    priority          integer not null,
    sequence_id       integer,
    tenant_id         text,
    lane              text,
    attempt_no        integer not null default 0,
    attempt_count     integer not null default 0,
    max_attempts      integer,
    claimed_at        integer,
    lease_expires_at  integer,
    lease_token       blob,
    claimed_by        text,
    constraint delivery_pk primary key (message_id, sink),
    constraint delivery_sink_is_short_text check (sink <> '' and length(cast(sink as blob)) <= 255),
    constraint delivery_lane_has_sequence check ((lane is null) = (sequence_id is null)),
    constraint delivery_counts_are_ordered check (attempt_count between 0 and attempt_no),
    constraint delivery_lease_is_whole check (
        (claimed_at is null) = (lease_token is null) and (lease_expires_at is null) = (lease_token is null)
        and (claimed_by is null) = (lease_token is null)
    ),
    constraint delivery_parked_is_a_lane_head_without_lease check (
        due_at <> 9223372036854775807 or (lane is not null and lease_token is null)
    )
) strict, without rowid;

-- Deliveries without a lane: priority first, then due time. Within one priority only due rows are read.
create index outbox_delivery_due on outbox_delivery (sink, priority desc, due_at, message_id)
    where lane is null;
create index outbox_delivery_due_of_tenant on outbox_delivery (sink, tenant_id, priority desc, due_at, message_id)
    where lane is null and tenant_id is not null;
-- Lanes: the claim hops from lane head to lane head.
create unique index outbox_delivery_lane on outbox_delivery (sink, lane, sequence_id)
    where lane is not null;
create index outbox_delivery_lane_of_tenant on outbox_delivery (sink, tenant_id, lane, sequence_id)
    where lane is not null and tenant_id is not null;
-- What is leased, and nothing else: whether a lane is in somebody's hand, and which leases ran out. (PostgreSQL has
-- no such index, and a column that says how far a lease reaches into its lane, because there an index on a lease costs
-- every claim; here it does not.)
create index outbox_delivery_leased on outbox_delivery (sink, lane, lease_expires_at)
    where lease_token is not null;

-- One try and its outcome. Append-only.
create table outbox_attempt (
    message_id     blob    not null,
    sink           text    not null,
    attempt_no     integer not null,
    state          text    not null,
    claimed_at     integer not null,
    completed_at   integer not null,
    latency_ms     integer,
    worker_id      text    not null,
    code           text,
    reference      text,
    error_code     text,
    error_message  text,
    answer         text,
    constraint attempt_pk primary key (message_id, sink, attempt_no),
    constraint attempt_state_is_known check (state in ('DISPATCHED', 'RETRYABLE', 'FAILED', 'ZOMBIE_REQUEUE', 'CANCELLED')),
    constraint attempt_no_starts_at_one check (attempt_no >= 1),
    constraint attempt_latency_is_not_negative check (latency_ms is null or latency_ms >= 0)
) strict, without rowid;
-- Always written at its end; lets the status view read the last minutes only.
create index outbox_attempt_completed on outbox_attempt (completed_at, sink, state);

-- A delivery that nobody will retry by itself.
create table outbox_dead_letter (
    message_id     blob    not null,
    sink           text    not null,
    died_at        integer not null,
    reason         text    not null,
    priority       integer not null,
    tenant_id      text,
    lane           text,
    sequence_id    integer,
    attempt_no     integer not null,
    attempt_count  integer not null,
    parked         integer not null,
    error_code     text,
    error_message  text,
    constraint dead_letter_pk primary key (message_id, sink),
    constraint dead_letter_reason_is_known check (reason in ('FAILED', 'ATTEMPTS_EXHAUSTED')),
    constraint dead_letter_lane_has_sequence check ((lane is null) = (sequence_id is null)),
    constraint dead_letter_parked_is_a_boolean check (parked in (0, 1)),
    constraint dead_letter_parks_only_a_lane check (lane is not null or parked = 0)
) strict, without rowid;

-- The last number given out in each lane. Bumped inside the producer's transaction.
create table outbox_lane_sequence (
    lane           text    not null,
    last_sequence  integer not null,
    constraint lane_sequence_pk primary key (lane),
    constraint lane_sequence_is_not_negative check (last_sequence >= 0)
) strict, without rowid;

-- Which message a dedupe key stands for, kept for the dedupe window, whatever became of the message. The tenant is part of
-- what is unique, so that nobody takes another's key; it is empty if there is none.
create table outbox_dedupe (
    namespace   text not null,
    topic       text not null,
    tenant      text not null,
    dedupe_key  text not null,
    message_id  blob not null,
    constraint dedupe_pk primary key (namespace, topic, tenant, dedupe_key)
) strict, without rowid;
-- Ids carry their time: what is older than the window stands in front.
create index outbox_dedupe_by_age on outbox_dedupe (message_id);

-- Where topics go. No matching route: the sink `default`. The pattern is GLOB's with its other wildcards quoted, since
-- only * has a meaning here; GLOB minds the case.
create table outbox_route (
    namespace   text not null,
    topic       text not null,
    sink        text not null,
    topic_glob  text not null generated always as (replace(replace(topic, '[', '[[]'), '?', '[?]')) stored,
    constraint route_pk primary key (namespace, topic, sink),
    constraint route_is_short_text check (
        namespace <> '' and topic <> '' and sink <> '' and length(cast(namespace as blob)) <= 255
        and length(cast(topic as blob)) <= 255 and length(cast(sink as blob)) <= 255
    )
) strict;

create table outbox_sink (
    name     text    not null,
    on_dead  text    not null default 'park',
    paused   integer not null default 0,
    constraint sink_pk primary key (name),
    constraint sink_name_is_short_text check (name <> '' and length(cast(name as blob)) <= 255),
    constraint sink_on_dead_is_known check (on_dead in ('park', 'skip')),
    constraint sink_paused_is_a_boolean check (paused in (0, 1))
) strict, without rowid;

-- Guards. An insert is looked at, too: INSERT OR REPLACE would take the old row away without asking the other triggers.

create trigger outbox_message_is_written_once before update on outbox_message
begin
    select raise(abort, 'UPDATE on outbox_message is refused: its rows are written once');
end;
create trigger outbox_message_is_not_replaced before insert on outbox_message
when exists (select 1 from outbox_message m where m.id = new.id)
begin
    select raise(abort, 'a message with this id is there: messages are written once');
end;
create trigger outbox_message_is_kept_until_delivered before delete on outbox_message
when exists (select 1 from outbox_delivery d where d.message_id = old.id)
  or exists (select 1 from outbox_dead_letter l where l.message_id = old.id)
begin
    select raise(abort, 'DELETE on outbox_message is refused: the message has not ended well yet');
end;

create trigger outbox_attempt_is_append_only before update on outbox_attempt
begin
    select raise(abort, 'UPDATE on outbox_attempt is refused: its rows are written once');
end;
create trigger outbox_attempt_is_not_replaced before insert on outbox_attempt
when exists (select 1 from outbox_attempt a
             where a.message_id = new.message_id and a.sink = new.sink and a.attempt_no = new.attempt_no)
begin
    select raise(abort, 'this attempt is recorded: attempts are written once');
end;
-- Attempts go with their message, and not before: pruning deletes the message first.
create trigger outbox_attempt_goes_with_its_message before delete on outbox_attempt
when exists (select 1 from outbox_message m where m.id = old.message_id)
begin
    select raise(abort, 'DELETE on outbox_attempt is refused: attempts go with their message, by pruning');
end;
