-- The inbox: which events of others were received here, so that one that comes again is recognised.
-- Applied once by `postrider migrate up`; frozen once released. The rules are in ../functions/receive_many.sql and
-- ../functions/prune_inbox.sql.

alter table :"schema".setting
    add column inbox_retention       interval not null default '7 days',
    add column inbox_lane_retention  interval not null default '90 days',
    add column inbox_lane_spans      integer  not null default 100,
    add column inbox_clock_skew      interval not null default '5 minutes',
    add column inbox_pruned_at       timestamptz,
    add constraint setting_inbox_durations_are_positive check (inbox_retention > '0' and inbox_lane_retention > '0'),
    add constraint setting_inbox_clock_skew_is_not_negative check (inbox_clock_skew >= '0'),
    add constraint setting_inbox_lane_spans_is_bounded check (inbox_lane_spans between 1 and 10000);

-- One event that was received. The tenant is empty if there is none: null would never equal null.
create table :"schema".inbox (
    event_id     uuid        not null,
    received_at  timestamptz not null,
    sequence_id  bigint,
    tenant       text collate "C" not null,
    source       text collate "C" not null,
    lane         text collate "C",
    constraint inbox_pk primary key (event_id, tenant),
    constraint inbox_tenant_is_short_text check (octet_length(tenant) <= 255),
    constraint inbox_source_is_short_text check (octet_length(source) <= 255),
    constraint inbox_lane_is_short_text check (lane <> '' and octet_length(lane) <= 255),
    constraint inbox_lane_has_sequence check ((lane is null) = (sequence_id is null)),
    constraint inbox_sequence_starts_at_one check (sequence_id >= 1)
) with (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05
);
-- What is past its retention stands in front: a prune reads what it deletes and nothing else.
create index inbox_by_age on :"schema".inbox (received_at);
comment on table :"schema".inbox is 'Events of others that were received here, for the retention.';

-- What a lane remembers of the events that were pruned: numbers first_sequence to last_sequence were all received.
-- An ordinary lane has one row. Ids are UUIDv7: newest_event_id tells when the newest of them was made.
create table :"schema".inbox_lane (
    first_sequence   bigint      not null,
    last_sequence    bigint      not null,
    newest_event_id  uuid        not null,
    remembered_at    timestamptz not null,
    tenant           text collate "C" not null,
    source           text collate "C" not null,
    lane             text collate "C" not null,
    constraint inbox_lane_pk primary key (source, lane, tenant, first_sequence),
    constraint inbox_lane_span_is_ordered check (1 <= first_sequence and first_sequence <= last_sequence)
) with (fillfactor = 50);
create index inbox_lane_by_age on :"schema".inbox_lane (remembered_at);
comment on table :"schema".inbox_lane is 'Numbers of a lane that were received and whose events are pruned, as spans.';

create trigger inbox_is_not_truncated before truncate on :"schema".inbox
    for each statement execute function :"schema".refuse_truncate();
create trigger inbox_lane_is_not_truncated before truncate on :"schema".inbox_lane
    for each statement execute function :"schema".refuse_truncate();

-- What receive_many answers.
create type :"schema".received as (
    ordinal   integer,
    event_id  uuid,
    first     boolean
);
comment on type :"schema".received is 'An event that was asked about, its place in the call, and whether it came for the first time.';
