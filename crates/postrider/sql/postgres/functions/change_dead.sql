-- Redrives or discards dead letters that are described instead of named, the oldest first. Internal: what redrive_matching and
-- discard_matching do; `action` is `redrive` or `discard`. What is null does not matter; all null means every dead letter. An
-- empty error_code means those without one.
-- Locks: the dead letters, FOR UPDATE SKIP LOCKED: it waits for nobody, so it cannot deadlock with whoever locks by id,
--   and two operators with the same wish get different letters.
-- Index: dead_letter_by_time or dead_letter_of_sink, backwards; dead_letter_pk for message_ids. A custom plan, so that
--   what is null is no part of it.
create or replace function :"schema".change_dead(
    action text, message_ids uuid[], sink text, namespace text, topic text, tenant_id text, lane text, reason text,
    error_code text, died_from timestamptz, died_to timestamptz, at_most integer, actor text
)
    returns integer language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_custom_plan set jit = off
as $$
#variable_conflict use_column
declare
    v_ids    uuid[];
    v_sinks  text[];
begin
    perform refuse_unless(change_dead.at_most between 1 and 10000, 'at_most must be between 1 and 10000');
    select array_agg(c.message_id), array_agg(c.sink) into v_ids, v_sinks
    from (
        select l.message_id, l.sink from dead_letter l
        where num_nulls(l.died_at) <> 1
          and (change_dead.message_ids is null or l.message_id = any (change_dead.message_ids))
          and (change_dead.sink is null or l.sink = change_dead.sink)
          and (change_dead.namespace is null or l.namespace = change_dead.namespace)
          and (change_dead.topic is null or l.topic like topic_like(change_dead.topic))
          and (change_dead.tenant_id is null or l.tenant_id = change_dead.tenant_id)
          and (change_dead.lane is null or l.lane = change_dead.lane)
          and (change_dead.reason is null or l.reason = change_dead.reason)
          and (change_dead.error_code is null or coalesce(l.error_code, '') = change_dead.error_code)
          and (change_dead.died_from is null or l.died_at >= change_dead.died_from)
          and (change_dead.died_to is null or l.died_at < change_dead.died_to)
        order by l.died_at, l.message_id
        limit change_dead.at_most
        for update skip locked
    ) c;
    return write_audit(change_dead.actor, change_dead.action, jsonb_build_object(
        'message_ids', change_dead.message_ids, 'sink', change_dead.sink, 'namespace', change_dead.namespace,
        'topic', change_dead.topic, 'tenant_id', change_dead.tenant_id, 'lane', change_dead.lane,
        'reason', change_dead.reason, 'error_code', change_dead.error_code, 'died_from', utc(change_dead.died_from),
        'died_to', utc(change_dead.died_to), 'at_most', change_dead.at_most),
        change_letters(change_dead.action, v_ids, v_sinks));
end
$$;
comment on function :"schema".change_dead is 'Internal: redrives or discards the oldest dead letters of a kind.';

-- Redrives or discards dead letters, as pairs of message and sink. Internal: what redrive, discard and change_dead do.
-- Locks: the letters, in id order, each by a look of its own; for a redrive then the front of the lanes of each sink (see
--   hold_lane_fronts), whose leases are known once no claim is under way there. A redrive needs READ COMMITTED.
create or replace function :"schema".change_letters(action text, message_ids uuid[], sinks text[])
    returns integer language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_redrive  constant boolean := change_letters.action = 'redrive';
    v_lanes    text[];
    v_now      timestamptz;
    v_count    integer;
begin
    perform refuse_stale_snapshot() where v_redrive;
    select array_agg(distinct l.sink) filter (where l.lane is not null) into v_lanes
    from (
        select i.id, i.sink from unnest(change_letters.message_ids, change_letters.sinks) i (id, sink)
        order by i.id, i.sink
    ) i
    cross join lateral (
        select l.sink, l.lane from dead_letter l where l.message_id = i.id and l.sink = i.sink offset 0 for update
    ) l;
    perform hold_lane_fronts(v_lanes) where v_redrive;
    v_now := clock_timestamp();
    -- By place: letters are locked, and nobody else touches a parked head.
    with chosen as materialized (
        select l.*, p.place as parked_place
        from unnest(change_letters.message_ids, change_letters.sinks) i (id, sink)
        cross join lateral (
            select l.ctid as place, l.* from dead_letter l where l.message_id = i.id and l.sink = i.sink offset 0
        ) l
        left join lateral (
            select d.ctid as place from delivery d
            where l.parked and d.message_id = l.message_id and d.sink = l.sink
            offset 0
        ) p on true
    ),
    ended as (
        delete from dead_letter l using chosen c where l.ctid = c.place
    ),
    passed_on as (
        delete from delivery d using chosen c where not v_redrive and d.ctid = c.parked_place
    ),
    unparked as (
        update delivery d set due_at = v_now, attempt_count = 0 from chosen c where v_redrive and d.ctid = c.parked_place
    ),
    put_back as (
        insert into delivery (message_id, occurred_at, due_at, priority, size_bytes, sequence_id, tenant_id, sink, lane,
                              attempt_no, lane_tail)
        -- Asked once for each lane, and without a join: here that would compare every letter with every lane.
        select f.message_id, f.occurred_at, v_now, f.priority, f.size_bytes, f.sequence_id, f.tenant_id, f.sink, f.lane,
               f.attempt_no,
               max(case when f.nth = 1 and f.lane is not null then lane_reach(f.sink, f.lane) end)
                   over (partition by f.sink, f.lane)
        from (select c.*, row_number() over (partition by c.sink, c.lane) as nth from chosen c
              where v_redrive and not c.parked) f
        order by f.message_id, f.sink
        on conflict do nothing
    )
    select count(*) into v_count from chosen;
    if v_count > 0 then
        perform notify_sleepers();
    end if;
    return v_count;
end
$$;
comment on function :"schema".change_letters is 'Internal: redrives or discards dead letters.';
