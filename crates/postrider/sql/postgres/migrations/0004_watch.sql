-- What is watched: which relays are alive, and how every sink stood every few seconds.
-- Applied once by `postrider migrate up`; frozen once released. The rules are in ../functions/report.sql and
-- ../functions/measure.sql.

alter table :"schema".setting
    add column sample_every      interval not null default '10 seconds',
    add column sample_lag        interval not null default '1 second',
    add column sample_reach      interval not null default '1 hour',
    add column sample_retention  interval not null default '24 hours',
    add column relay_retention   interval not null default '24 hours',
    add constraint setting_watch_durations_are_positive check (
        sample_lag > '0' and sample_every > sample_lag and sample_reach >= sample_every
        and sample_retention > '0' and relay_retention > '0'
    );

-- What each relay said last. Unlogged like `sleeper`: after a crash each says it again within seconds.
create unlogged table :"schema".relay (
    worker_id    text collate "C" not null,
    started_at   timestamptz not null,
    reported_at  timestamptz not null,
    every        interval    not null,
    version      text        not null,
    sinks        jsonb       not null,
    constraint relay_pk primary key (worker_id)
) with (fillfactor = 50);
comment on table :"schema".relay is 'Relays as they last reported: their sinks, and when the next report is expected.';

-- How a sink stood at a moment, and what happened since the moment before. A few rows every few seconds, kept for a day.
create table :"schema".sample (
    at                      timestamptz not null,
    seconds                 double precision not null,
    pending                 bigint      not null,
    due                     bigint      not null,
    leased                  bigint      not null,
    expired                 bigint      not null,
    dead                    bigint      not null,
    parked_lanes            bigint      not null,
    oldest_pending_age_seconds double precision not null,
    oldest_due_age_seconds  double precision not null,
    dispatched              bigint      not null,
    retryable               bigint      not null,
    failed                  bigint      not null,
    zombie_requeue          bigint      not null,
    latency_p50_ms          double precision,
    latency_p99_ms          double precision,
    last_success_at         timestamptz,
    last_error_at           timestamptz,
    sink                    text collate "C" not null,
    constraint sample_pk primary key (at, sink),
    constraint sample_interval_is_positive check (seconds > 0)
);
comment on table :"schema".sample is 'How each sink stood every few seconds, and the attempts in between.';

-- What find_messages answers.
create type :"schema".found as (
    message_id   uuid,
    enqueued_at  timestamptz,
    namespace    text,
    topic        text,
    lane         text,
    sequence_id  bigint,
    sink         text,
    state        text,
    attempt_no   integer,
    due_at       timestamptz,
    look_on      uuid
);
comment on type :"schema".found is 'A message and one of its deliveries; or, without a message, where to look on.';
