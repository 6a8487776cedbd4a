-- What is written by hand for comparison: one table that is a queue, and its attempts. Made beside the outbox, in the same schema.
create table :"schema".floor_job (
    id                uuid        not null,
    due_at            timestamptz not null default now(),
    attempt_no        integer     not null default 0,
    payload           jsonb       not null,
    claimed_at        timestamptz,
    lease_expires_at  timestamptz,
    lease_token       uuid,
    claimed_by        text,
    constraint floor_job_pk primary key (id)
) with (
    fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
create index floor_job_due on :"schema".floor_job (due_at, id);

create table :"schema".floor_attempt (
    job_id        uuid        not null,
    attempt_no    integer     not null,
    claimed_at    timestamptz not null,
    completed_at  timestamptz not null,
    worker_id     text        not null,
    state         text        not null,
    constraint floor_attempt_pk primary key (job_id, attempt_no)
);
