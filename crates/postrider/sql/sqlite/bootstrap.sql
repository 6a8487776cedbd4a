-- The list of applied migrations: what this file holds of the outbox. Applied first, by every migrator.
-- Not `PRAGMA user_version`: that number belongs to the application whose file this is.
create table if not exists outbox_migration (
    version     integer not null,
    name        text    not null,
    checksum    text    not null,
    applied_at  integer not null,
    constraint migration_pk primary key (version)
) strict;
