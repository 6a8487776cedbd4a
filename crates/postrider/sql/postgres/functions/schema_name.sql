-- The name of the schema these functions live in: the second of the path that each of them pins. Internal.
create or replace function :"schema".schema_name()
    returns text language sql stable
    set search_path = pg_catalog, :"schema", pg_temp
as $$ select (current_schemas(false))[2]::text $$;
comment on function :"schema".schema_name is 'Internal: the name of this schema.';
