-- What is watched: which relays are alive, and how every sink stood every few seconds.
-- Applied once, by whoever opens the file first; frozen once released. When a sample is due, and what it counts, is told
-- in src/store/sqlite/watch.rs.

alter table outbox_setting add column sample_every_seconds real not null default 10.0
    constraint setting_sample_every_is_positive check (sample_every_seconds > 0);
alter table outbox_setting add column sample_lag_seconds real not null default 1.0
    constraint setting_sample_lag_is_less_than_every
    check (sample_lag_seconds > 0 and sample_lag_seconds < sample_every_seconds);
alter table outbox_setting add column sample_reach_seconds real not null default 3600.0
    constraint setting_sample_reach_is_more_than_every check (sample_reach_seconds >= sample_every_seconds);
alter table outbox_setting add column sample_retention_seconds integer not null default 86400
    constraint setting_sample_retention_is_positive check (sample_retention_seconds > 0);
alter table outbox_setting add column relay_retention_seconds integer not null default 86400
    constraint setting_relay_retention_is_positive check (relay_retention_seconds > 0);

-- What each relay said last.
create table outbox_relay (
    worker_id    text    not null,
    started_at   integer not null,
    reported_at  integer not null,
    every_us     integer not null,
    version      text    not null,
    sinks        text    not null,
    constraint relay_pk primary key (worker_id),
    constraint relay_sinks_is_array check (json_valid(sinks) and json_type(sinks) = 'array')
) strict, without rowid;

-- How a sink stood at a moment, and what happened since the moment before. A few rows every few seconds, kept for a day.
create table outbox_sample (
    at                      integer not null,
    sink                    text    not null,
    seconds                 real    not null,
    pending                 integer not null,
    due                     integer not null,
    leased                  integer not null,
    expired                 integer not null,
    dead                    integer not null,
    parked_lanes            integer not null,
    oldest_pending_age_seconds real not null,
    oldest_due_age_seconds  real    not null,
    dispatched              integer not null,
    retryable               integer not null,
    failed                  integer not null,
    zombie_requeue          integer not null,
    latency_p50_ms          real,
    latency_p99_ms          real,
    last_success_at         integer,
    last_error_at           integer,
    constraint sample_pk primary key (at, sink),
    constraint sample_interval_is_positive check (seconds > 0)
) strict, without rowid;
