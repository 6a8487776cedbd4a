-- The inbox: which events of others were received here, so that one that comes again is recognised.
-- Applied once, by whoever opens the file first; frozen once released. What is written here, and when, is told in
-- ../statements/receive.sql and in src/inbox/span.rs.

alter table outbox_setting add column inbox_retention_seconds integer not null default 604800
    constraint setting_inbox_retention_is_positive check (inbox_retention_seconds > 0);
alter table outbox_setting add column inbox_lane_retention_seconds integer not null default 7776000
    constraint setting_inbox_lane_retention_is_positive check (inbox_lane_retention_seconds > 0);
alter table outbox_setting add column inbox_lane_spans integer not null default 100
    constraint setting_inbox_lane_spans_is_bounded check (inbox_lane_spans between 1 and 10000);
alter table outbox_setting add column inbox_clock_skew_seconds integer not null default 300
    constraint setting_inbox_clock_skew_is_not_negative check (inbox_clock_skew_seconds >= 0);

-- One event that was received. The tenant is empty if there is none: null would never equal null.
create table outbox_inbox (
    event_id     blob    not null,
    tenant       text    not null,
    received_at  integer not null,
    source       text    not null,
    lane         text,
    sequence_id  integer,
    constraint inbox_pk primary key (event_id, tenant),
    constraint inbox_event_id_is_a_uuid check (length(event_id) = 16),
    constraint inbox_tenant_is_short_text check (length(cast(tenant as blob)) <= 255),
    constraint inbox_source_is_short_text check (length(cast(source as blob)) <= 255),
    constraint inbox_lane_is_short_text check (lane is null or (lane <> '' and length(cast(lane as blob)) <= 255)),
    constraint inbox_lane_has_sequence check ((lane is null) = (sequence_id is null)),
    constraint inbox_sequence_starts_at_one check (sequence_id is null or sequence_id >= 1)
) strict, without rowid;
-- What is past its retention stands in front.
create index outbox_inbox_by_age on outbox_inbox (received_at);

-- What a lane remembers of the events that were pruned: numbers first_sequence to last_sequence were all received.
-- An ordinary lane has one row. Ids are UUIDv7: newest_event_id tells when the newest of them was made.
create table outbox_inbox_lane (
    source           text    not null,
    lane             text    not null,
    tenant           text    not null,
    first_sequence   integer not null,
    last_sequence    integer not null,
    newest_event_id  blob    not null,
    remembered_at    integer not null,
    constraint inbox_lane_pk primary key (source, lane, tenant, first_sequence),
    constraint inbox_lane_span_is_ordered check (1 <= first_sequence and first_sequence <= last_sequence)
) strict, without rowid;
create index outbox_inbox_lane_by_age on outbox_inbox_lane (remembered_at);
