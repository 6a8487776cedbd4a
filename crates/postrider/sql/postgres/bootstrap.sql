-- What stands before the first migration: the schema and the list of applied migrations.
create schema if not exists :"schema";
create table if not exists :"schema".migration (
    version     integer     not null,
    name        text        not null,
    checksum    text        not null,
    applied_at  timestamptz not null default now(),
    constraint migration_pk primary key (version)
);
comment on table :"schema".migration is 'Which migrations were applied, and when.';
