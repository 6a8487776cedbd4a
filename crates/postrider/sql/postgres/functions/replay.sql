-- Delivers again: a new delivery for messages that are still in the store, named by id or by when they were written.
-- Caller: an operator; audited. Transition: delivered -> pending, due now; attempt numbers go on. Only what was delivered to
-- this sink before (it has an attempt DISPATCHED) is meant; with include_never_delivered also what was not, because no
-- route sent it there, or because somebody gave it up. What is pending or dead for the sink is left alone. Messages of a
-- lane go in sequence, before what waits there. P7003: there is no such sink (see sink_is_known).
-- READ COMMITTED only (25001 otherwise): it looks again after it has waited.
-- Locks: the front of the sink's lanes (see hold_lane_fronts); reading `message` keeps prune from dropping the partition
--   until this transaction ends. Zero: nothing found.
create or replace function :"schema".replay(
    message_ids    uuid[]      default null,
    sink           text        default 'default',
    enqueued_from  timestamptz default null,
    enqueued_to    timestamptz default null,
    namespace      text        default null,
    topic          text        default null,
    include_never_delivered boolean default false,
    actor          text        default null
)
    returns integer language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
begin
    return (select b.replayed
            from replay_batch(replay.message_ids, replay.sink, replay.enqueued_from, replay.enqueued_to,
                              replay.namespace, replay.topic,
                              include_never_delivered => replay.include_never_delivered, actor => replay.actor) b);
end
$$;
comment on function :"schema".replay is 'Delivers messages again to a sink; returns how many.';
grant execute on function :"schema".replay to :"operator";

-- The same in steps, in the order of ids, and at a rate. `at_most`: looks at no more than this many messages; next_id is
-- where the next call goes on, with after_id, and null when there is no more. `per_second`: they become due one after
-- the other, from now on, or from `paced_from` if that is later; paced_until is the paced_from of the next call. Zero with
-- a next_id: go on.
create or replace function :"schema".replay_batch(
    message_ids    uuid[]      default null,
    sink           text        default 'default',
    enqueued_from  timestamptz default null,
    enqueued_to    timestamptz default null,
    namespace      text        default null,
    topic          text        default null,
    after_id       uuid        default null,
    at_most        integer     default null,
    per_second     integer     default null,
    paced_from     timestamptz default null,
    include_never_delivered boolean default false,
    actor          text        default null,
    out replayed   integer,
    out next_id    uuid,
    out paced_until timestamptz
)
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    c_most_ahead constant interval := '366 days';
    v_start   timestamptz := greatest(clock_timestamp(), replay_batch.paced_from);
    v_step    interval;
    v_looked  integer;
    v_chosen  integer;
    v_ids     uuid[];
begin
    perform refuse_unless(octet_length(replay_batch.sink) between 1 and 255, 'sink must be 1 to 255 bytes of text');
    perform refuse_unless(num_nonnulls(replay_batch.enqueued_from, replay_batch.enqueued_to)
                          = case when replay_batch.message_ids is null then 2 else 0 end,
                          'name message_ids, or enqueued_from and enqueued_to');
    perform refuse_unless(replay_batch.include_never_delivered is not null,
                          'include_never_delivered must be true or false');
    perform refuse_unless(coalesce(replay_batch.at_most between 1 and 10000, true),
                          'at_most must be between 1 and 10000');
    perform refuse_unless(coalesce(replay_batch.per_second between 1 and 1000000, true),
                          'per_second must be between 1 and 1000000');
    perform refuse_unless(replay_batch.paced_from is null or replay_batch.per_second is not null,
                          'paced_from needs per_second');
    perform refuse_unless(coalesce(replay_batch.paced_from <= clock_timestamp() + c_most_ahead, true),
                          'paced_from must be at most 366 days ahead');
    perform refuse_stale_snapshot();
    -- Asked at the first step: a name that is mistyped would get deliveries that nobody ever takes.
    if replay_batch.after_id is null
       and not sink_is_known(
           replay_batch.sink,
           case when replay_batch.enqueued_from is not null then message_id_floor(replay_batch.enqueued_from) end,
           case when replay_batch.enqueued_to is not null then message_id_floor(replay_batch.enqueued_to) end,
           replay_batch.message_ids)
    then
        raise exception 'there is no sink "%"', replay_batch.sink using errcode = 'P7003',
            hint = 'A new sink is known once it has a route, or a relay delivers to it.';
    end if;
    -- Any of them may have a lane.
    perform hold_lane_fronts(array[replay_batch.sink]);
    v_step := coalesce(interval '1 second' / replay_batch.per_second, interval '0');
    with looked_at as materialized (
        select m.id, m.occurred_at, m.priority,
               m.content_bytes + coalesce(octet_length(m.headers::text), 0) as size_bytes, m.sequence_id, m.tenant_id, m.lane,
               m.namespace, m.topic
        from message m
        where (replay_batch.message_ids is null or m.id = any (replay_batch.message_ids))
          and (replay_batch.enqueued_from is null or m.id >= message_id_floor(replay_batch.enqueued_from))
          and (replay_batch.enqueued_to is null or m.id < message_id_floor(replay_batch.enqueued_to))
          and (replay_batch.after_id is null or m.id > replay_batch.after_id)
        order by m.id
        limit replay_batch.at_most
    ),
    chosen as materialized (
        select m.id, m.occurred_at, m.priority, m.size_bytes, m.sequence_id, m.tenant_id, m.lane
        from looked_at m
        where (replay_batch.namespace is null or m.namespace = replay_batch.namespace)
          and (replay_batch.topic is null or m.topic like topic_like(replay_batch.topic))
          and not exists (select from dead_letter l where l.message_id = m.id and l.sink = replay_batch.sink)
          -- Looked up for each: joined, the planner might read every attempt there is.
          and (replay_batch.include_never_delivered or coalesce((
              select true from attempt a
              where a.message_id = m.id and a.sink = replay_batch.sink and a.state = 'DISPATCHED'
              limit 1), false))
    ),
    put as (
        insert into delivery as d (message_id, occurred_at, due_at, priority, size_bytes, sequence_id, tenant_id, sink, lane,
                                   lane_tail)
        select f.id, f.occurred_at, v_start + (f.place - 1) * v_step, f.priority, f.size_bytes, f.sequence_id,
               f.tenant_id, replay_batch.sink, f.lane,
               max(case when f.nth = 1 and f.lane is not null then lane_reach(replay_batch.sink, f.lane) end)
                   over (partition by f.lane)
        from (select c.*, row_number() over (order by c.id) as place, row_number() over (partition by c.lane) as nth
              from chosen c) f
        order by f.id
        on conflict do nothing
        returning d.message_id
    )
    select (select count(*) from looked_at), (select m.id from looked_at m order by m.id desc limit 1),
           (select count(*) from chosen), (select array_agg(p.message_id) from put p)
    into v_looked, next_id, v_chosen, v_ids;
    if replay_batch.per_second is not null then
        paced_until := v_start + v_chosen * v_step;
    end if;
    if v_looked is distinct from replay_batch.at_most then
        next_id := null;
    end if;

    -- The insert may have waited for a completion that was just being committed. What that one wrote is seen now: a
    -- dead letter keeps its message, and attempt numbers go on after the last.
    delete from delivery d using dead_letter l
    where d.message_id = any (v_ids) and d.sink = replay_batch.sink and l.message_id = d.message_id and l.sink = d.sink;
    update delivery d
    set attempt_no = coalesce((select max(a.attempt_no) from attempt a
                               where a.message_id = d.message_id and a.sink = replay_batch.sink), 0)
    where d.message_id = any (v_ids) and d.sink = replay_batch.sink;
    get diagnostics replayed = row_count;
    if replayed > 0 then
        perform notify_sleepers();
    end if;
    perform write_audit(replay_batch.actor, 'replay', jsonb_build_object(
        'message_ids', replay_batch.message_ids, 'sink', replay_batch.sink, 'from', utc(replay_batch.enqueued_from),
        'to', utc(replay_batch.enqueued_to), 'namespace', replay_batch.namespace, 'topic', replay_batch.topic,
        'include_never_delivered', nullif(replay_batch.include_never_delivered, false),
        'after', replay_batch.after_id, 'at_most', replay_batch.at_most, 'per_second', replay_batch.per_second,
        'paced_from', utc(replay_batch.paced_from)), replayed);
end
$$;
comment on function :"schema".replay_batch is
    'Delivers messages again to a sink, in steps and at a rate; returns how many, and where and when to go on.';
grant execute on function :"schema".replay_batch to :"operator";
