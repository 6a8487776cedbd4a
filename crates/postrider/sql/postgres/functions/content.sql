-- Headers and content of a message that was claimed without them.
-- Caller: a worker whose claims fail, and who looks for the message that cannot be read. Fenced like complete_many.
-- Index: delivery_pk, message_pk. Zero rows: the message is not held under this token.
create or replace function :"schema".content(lease_token uuid, message_id uuid)
    returns table (headers jsonb, payload jsonb, body bytea) language plpgsql security definer
    rows 1
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
begin
    return query
    select m.headers, m.payload, m.body from message m
    where m.id = content.message_id and exists (
        select from delivery d
        where d.message_id = content.message_id and d.lease_token = content.lease_token
          and d.lease_expires_at > clock_timestamp());
end
$$;
comment on function :"schema".content is 'Headers and content of a message that is held under this token.';
grant execute on function :"schema".content to :"relay";
