-- Chooses and locks pending deliveries by what is known about them, those that are due next first. Internal.
-- Caller: retry_now and cancel. What is null does not matter; all null means every pending delivery. `due_after`: only
--   those that are due later than this. What is leased is left alone, and so is a dead lane head that parks its lane: that
--   one belongs to its dead letter.
-- Locks: the deliveries, FOR UPDATE SKIP LOCKED: it waits for nobody, and what a claim is just taking is passed by.
-- Index: delivery_pk for named messages, delivery_lane for a lane of a sink; otherwise it reads the hot table once. The
--   message is looked up only if its namespace or topic is asked for. A custom plan, so that what is null is no part of it.
-- Returns their places, which stay theirs while they are locked; null if nothing was found.
create or replace function :"schema".choose_pending(
    message_ids  uuid[],
    sink         text,
    namespace    text,
    topic        text,
    tenant_id    uuid,
    lane         text,
    due_after    timestamptz,
    at_most      integer
)
    returns tid[]
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_custom_plan
    set jit = off
as $$
#variable_conflict use_column
begin
    if not coalesce(choose_pending.at_most between 1 and 10000, false) then
        raise exception 'at_most must be between 1 and 10000' using errcode = '22023';
    end if;
    return (
        select array_agg(c.place)
        from (
            select d.ctid as place from delivery d
            where d.lease_token is null and d.due_at < 'infinity'
              and (choose_pending.due_after is null or d.due_at > choose_pending.due_after)
              and (choose_pending.message_ids is null or d.message_id = any (choose_pending.message_ids))
              and (choose_pending.sink is null or d.sink = choose_pending.sink)
              and (choose_pending.tenant_id is null or d.tenant_id = choose_pending.tenant_id)
              and (choose_pending.lane is null or d.lane = choose_pending.lane)
              and ((choose_pending.namespace is null and choose_pending.topic is null) or exists (
                  select from message m
                  where m.id = d.message_id
                    and (choose_pending.namespace is null or m.namespace = choose_pending.namespace)
                    and (choose_pending.topic is null or m.topic like topic_like(choose_pending.topic))
                  offset 0))
            order by d.due_at, d.message_id, d.sink
            limit choose_pending.at_most
            for update skip locked
        ) c);
end
$$;
comment on function :"schema".choose_pending(uuid[], text, text, text, uuid, text, timestamptz, integer) is
    'Internal: locks pending deliveries of a kind.';
