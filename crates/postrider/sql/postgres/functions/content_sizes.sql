-- How long each payload or body is as it is sent; null where there is neither, or both. What jsonb stores may be a thousandth
-- of that: 1e131071 is a few bytes, and 131,072 digits for a receiver.
-- Caller: enqueue_many, and enqueue for a large message. Internal. Errors: 22023 for a payload that is longer than any text of PostgreSQL's.
create or replace function :"schema".content_sizes(payload jsonb[], body bytea[])
    returns integer[] language plpgsql immutable
    set search_path = pg_catalog, :"schema", pg_temp
as $$
begin
    return array(
        select case when num_nonnulls(content_sizes.payload[n], content_sizes.body[n]) = 1
                    then coalesce(octet_length(content_sizes.body[n]), octet_length(content_sizes.payload[n]::text)) end
        from generate_series(1, greatest(cardinality(content_sizes.payload), cardinality(content_sizes.body))) n);
exception when program_limit_exceeded or out_of_memory then
    raise exception 'payload is larger than 16 MiB as it is sent'
        using errcode = '22023', hint = 'Store large content elsewhere and send a reference.';
end
$$;
comment on function :"schema".content_sizes is 'Internal: how long contents are as they are sent.';
