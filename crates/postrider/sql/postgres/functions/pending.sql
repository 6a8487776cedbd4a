-- What an operator does with pending deliveries that are described: takes them back, or makes them due. Each is audited.

-- Takes pending deliveries back: they are never handed out, and their lanes go on without them. At most `at_most` of them,
-- those that are due next first: whoever wants all calls again until it returns 0. What is not given does not matter;
-- nothing given means every pending delivery. What is leased is left alone, and counted; dead lane heads that park their
-- lane are left alone: discard those.
-- Caller: an operator, for what was enqueued or replayed by mistake; audited. Transition: pending -> gone, with an attempt
--   CANCELLED under the next number that says who and when. The message stays as history.
-- Locks: see change_pending: a claim under way has what it has locked, and is passed by. A lane needs no further lock: each
--   row knows itself how far a lease may reach behind it (lane_tail), and whoever claims looks at the lowest that is left.
-- Zero: nothing of the kind is pending, or a claim is just taking it.
create or replace function :"schema".cancel(
    message_ids uuid[] default null, sink text default null, namespace text default null, topic text default null,
    tenant_id text default null, lane text default null, at_most integer default 1000, actor text default null
)
    returns integer language sql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$ select change_pending('cancel', message_ids, sink, namespace, topic, tenant_id, lane, at_most, actor) $$;
comment on function :"schema".cancel is 'Takes pending deliveries back for good, not those that a worker holds.';
grant execute on function :"schema".cancel to :"operator";

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
grant execute on function :"schema".retry_now to :"operator";

-- Cancels pending deliveries or makes them due, those that are due next first. Internal: what cancel and retry_now do;
-- `action` is one of the two. What is null does not matter; all null means every pending delivery. What is leased is left
-- alone, and so is a dead lane head that parks its lane: that one belongs to its dead letter.
-- Locks: the deliveries, FOR UPDATE SKIP LOCKED: it waits for nobody, and what a claim is just taking is passed by. Their
--   places stay theirs while they are locked.
-- Index: delivery_pk for named messages, delivery_lane for a lane of a sink; otherwise it reads the hot table once. The
--   message is looked up only if its namespace or topic is asked for. A custom plan, so that what is null is no part of it.
create or replace function :"schema".change_pending(
    action text, message_ids uuid[], sink text, namespace text, topic text, tenant_id text, lane text, at_most integer,
    actor text
)
    returns integer language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_custom_plan set jit = off
as $$
#variable_conflict use_column
declare
    v_now     constant timestamptz := clock_timestamp();
    v_places  tid[];
    v_count   integer;
begin
    perform refuse_unless(change_pending.at_most between 1 and 10000, 'at_most must be between 1 and 10000');
    select array_agg(c.place) into v_places
    from (
        select d.ctid as place from delivery d
        where d.lease_token is null and d.due_at < 'infinity'
          and (change_pending.action <> 'retry_now' or d.due_at > v_now)
          and (change_pending.message_ids is null or d.message_id = any (change_pending.message_ids))
          and (change_pending.sink is null or d.sink = change_pending.sink)
          and (change_pending.tenant_id is null or d.tenant_id = change_pending.tenant_id)
          and (change_pending.lane is null or d.lane = change_pending.lane)
          and ((change_pending.namespace is null and change_pending.topic is null) or exists (
              select from message m
              where m.id = d.message_id
                and (change_pending.namespace is null or m.namespace = change_pending.namespace)
                and (change_pending.topic is null or m.topic like topic_like(change_pending.topic))
              offset 0))
        order by d.due_at, d.message_id, d.sink
        limit change_pending.at_most
        for update skip locked
    ) c;
    if change_pending.action = 'retry_now' then
        update delivery d set due_at = v_now where d.ctid = any (v_places);
    else
        with gone as (
            delete from delivery d where d.ctid = any (v_places)
            returning d.message_id, d.sink, d.attempt_no
        )
        insert into attempt (message_id, sink, attempt_no, state, claimed_at, completed_at, worker_id, error_code,
                             error_message)
        select g.message_id, g.sink, g.attempt_no + 1, 'CANCELLED', v_now, v_now,
               coalesce(change_pending.actor, session_user), 'CANCELLED', 'an operator cancelled the delivery'
        from gone g;
    end if;
    get diagnostics v_count = row_count;
    if v_count > 0 then
        perform notify_sleepers();
    end if;
    return write_audit(change_pending.actor, change_pending.action, jsonb_build_object(
        'message_ids', change_pending.message_ids, 'sink', change_pending.sink, 'namespace', change_pending.namespace,
        'topic', change_pending.topic, 'tenant_id', change_pending.tenant_id, 'lane', change_pending.lane,
        'at_most', change_pending.at_most), v_count);
end
$$;
comment on function :"schema".change_pending is 'Internal: cancels pending deliveries of a kind, or makes them due.';
