-- The state of the schema itself. Called by `migrate.rs`, in its transaction.

-- name: applied
-- The migrations that were applied, oldest first.
select version, name, checksum, applied_at from :"schema".migration order by version

-- name: lock
-- One migrator at a time.
lock table :"schema".migration in exclusive mode

-- name: installed
-- Which functions and views are there, and the prefix of the group roles.
select functions_hash, role_prefix from :"schema".setting

-- name: schema_version
-- The newest migration that was applied; any role may ask.
select :"schema".schema_version()
