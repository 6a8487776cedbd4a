-- Delivers again: a new delivery for messages that are still in the store, named by id or by when they were written.
-- Caller: an operator. Transition: delivered (or never sent to this sink) -> pending, due now; attempt numbers go on.
-- What is pending or dead for the sink is left alone. Messages of a lane go in sequence, before what waits there.
-- READ COMMITTED only (25001 otherwise): it looks again after it has waited.
-- Locks: reading `message` keeps prune from dropping the partition until this transaction ends. Zero: nothing found.
create or replace function :"schema".replay(
    message_ids    uuid[]      default null,
    sink           text        default 'default',
    enqueued_from  timestamptz default null,
    enqueued_to    timestamptz default null,
    namespace      text        default null,
    topic          text        default null
)
    returns integer
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_count integer;
    v_ids   uuid[];
begin
    if replay.sink is null or replay.sink = '' or octet_length(replay.sink) > 255 then
        raise exception 'sink must be 1 to 255 bytes of text' using errcode = '22023';
    elsif num_nonnulls(replay.enqueued_from, replay.enqueued_to) <> (case when replay.message_ids is null then 2 else 0 end) then
        raise exception 'name message_ids, or enqueued_from and enqueued_to' using errcode = '22023';
    end if;
    perform refuse_stale_snapshot();
    with chosen as materialized (
        select m.id, m.priority, m.sequence_id, m.tenant_id, m.lane
        from message m
        where (replay.message_ids is null or m.id = any (replay.message_ids))
          and (replay.enqueued_from is null or m.id >= message_id_floor(replay.enqueued_from))
          and (replay.enqueued_to is null or m.id < message_id_floor(replay.enqueued_to))
          and (replay.namespace is null or m.namespace = replay.namespace)
          and (replay.topic is null or m.topic = replay.topic)
          and not exists (select from dead_letter l where l.message_id = m.id and l.sink = replay.sink)
    ),
    put as (
        insert into delivery as d (message_id, due_at, priority, sequence_id, tenant_id, sink, lane, lane_tail)
        select f.id, clock_timestamp(), f.priority, f.sequence_id, f.tenant_id, replay.sink, f.lane,
               max(case when f.nth = 1 and f.lane is not null then lane_reach(replay.sink, f.lane) end)
                   over (partition by f.lane)
        from (select c.*, row_number() over (partition by c.lane) as nth from chosen c) f
        order by f.id
        on conflict do nothing
        returning d.message_id
    )
    select array_agg(p.message_id) into v_ids from put p;

    -- The insert may have waited for a completion that was just being committed. What that one wrote is seen now: a
    -- dead letter keeps its message, and attempt numbers go on after the last.
    delete from delivery d using dead_letter l
    where d.message_id = any (v_ids) and d.sink = replay.sink and l.message_id = d.message_id and l.sink = d.sink;
    update delivery d
    set attempt_no = coalesce((select max(a.attempt_no) from attempt a
                               where a.message_id = d.message_id and a.sink = replay.sink), 0)
    where d.message_id = any (v_ids) and d.sink = replay.sink;
    get diagnostics v_count = row_count;
    if v_count > 0 then
        perform notify_sleepers();
    end if;
    return v_count;
end
$$;
comment on function :"schema".replay(uuid[], text, timestamptz, timestamptz, text, text) is
    'Delivers messages again to a sink; returns how many.';
