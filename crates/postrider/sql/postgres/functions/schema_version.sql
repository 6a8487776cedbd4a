-- The number of the newest migration applied here. A binary compares it with the newest it knows and refuses to run
-- against a schema that is older or newer than it understands.
create or replace function :"schema".schema_version()
    returns integer language sql stable security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$ select coalesce(max(m.version), 0) from migration m $$;
comment on function :"schema".schema_version is 'The newest migration applied to this schema.';
grant execute on function :"schema".schema_version to :"producer", :"receiver", :"relay", :"reader", :"operator", :"auditor";
