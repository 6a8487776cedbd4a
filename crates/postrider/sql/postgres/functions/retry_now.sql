-- Makes pending deliveries whose time has not come due at once, those that are due next first, at most `at_most` of them:
-- whoever wants all calls again until it returns 0. What is not given does not matter; nothing given means every one. What
-- is leased and dead lane heads that park their lane are left alone.
-- Caller: an operator, when a destination is back early or the database's clock was wrong; audited. Transition:
--   pending -> pending, due now. A lane keeps its order: it goes by its lowest number, whatever is due behind that.
-- Locks: see change_pending. Zero: nothing waits for its time.
create or replace function :"schema".retry_now(
    message_ids uuid[] default null, sink text default null, namespace text default null, topic text default null,
    tenant_id text default null, lane text default null, at_most integer default 1000, actor text default null
)
    returns integer language sql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$ select change_pending('retry_now', message_ids, sink, namespace, topic, tenant_id, lane, at_most, actor) $$;
comment on function :"schema".retry_now is
    'Makes pending deliveries that wait for their time due at once; returns how many.';
