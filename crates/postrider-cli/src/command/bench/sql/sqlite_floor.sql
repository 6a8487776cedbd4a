-- What is written by hand for comparison, beside the outbox in the same file.
create table if not exists floor_message (
    id           blob    not null primary key,
    occurred_at  integer not null,
    payload      text    not null
) strict;
create table if not exists floor_job (
    message_id        blob    not null primary key,
    due_at            integer not null,
    lease_expires_at  integer,
    lease_token       blob
) strict, without rowid;
create index if not exists floor_job_due on floor_job (due_at, message_id);
create table if not exists floor_attempt (
    message_id    blob    not null,
    attempt_no    integer not null,
    completed_at  integer not null,
    primary key (message_id, attempt_no)
) strict, without rowid;
