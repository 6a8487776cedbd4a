-- Makes pending deliveries whose time has not come due at once, those that are due next first, at most `at_most` of them:
-- whoever wants all calls again until it returns 0. What is not given does not matter; nothing given means every one. What
-- is leased and dead lane heads that park their lane are left alone.
-- Caller: an operator, when a destination is back early or the database's clock was wrong; audited. Transition:
--   pending -> pending, due now. A lane keeps its order: it goes by its lowest number, whatever is due behind that.
-- Locks: see choose_pending. Zero: nothing waits for its time.
create or replace function :"schema".retry_now(
    message_ids  uuid[]  default null,
    sink         text    default null,
    namespace    text    default null,
    topic        text    default null,
    tenant_id    uuid    default null,
    lane         text    default null,
    at_most      integer default 1000,
    actor        text    default null
)
    returns integer
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_now     constant timestamptz := clock_timestamp();
    v_places  tid[];
    v_count   integer;
begin
    v_places := choose_pending(retry_now.message_ids, retry_now.sink, retry_now.namespace, retry_now.topic,
                               retry_now.tenant_id, retry_now.lane, v_now, retry_now.at_most);
    update delivery d set due_at = v_now where d.ctid = any (v_places);
    get diagnostics v_count = row_count;
    if v_count > 0 then
        perform notify_sleepers();
    end if;
    perform write_audit(retry_now.actor, 'retry_now', jsonb_build_object(
        'message_ids', retry_now.message_ids, 'sink', retry_now.sink, 'namespace', retry_now.namespace,
        'topic', retry_now.topic, 'tenant_id', retry_now.tenant_id, 'lane', retry_now.lane,
        'at_most', retry_now.at_most), v_count);
    return v_count;
end
$$;
comment on function :"schema".retry_now(uuid[], text, text, text, uuid, text, integer, text) is
    'Makes pending deliveries that wait for their time due at once; returns how many.';
