-- Puts dead letters back to pending: the attempt budget starts at 0 again, the attempt numbers go on.
-- Caller: an operator; audited. Transition: dead -> pending, due now. A parked lane head goes on in its place; a head that was
--   skipped comes back at its own number, which is now the lowest of its lane.
-- Locks: the dead letters, in id order, so two operators redrive each once; then the front of the lanes of each sink (see
--   hold_lane_fronts). READ COMMITTED only. Zero: nothing named is dead.
create or replace function :"schema".redrive(
    message_ids  uuid[]  default null,
    all_dead     boolean default false,
    sink         text    default null,
    actor        text    default null
)
    returns integer
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_ids    uuid[];
    v_sinks  text[];
    v_count  integer;
begin
    if (redrive.message_ids is not null) = coalesce(redrive.all_dead, false) then
        raise exception 'name message_ids or say all_dead => true, exactly one' using errcode = '22023';
    end if;
    if redrive.all_dead then
        select array_agg(l.message_id), array_agg(l.sink) into v_ids, v_sinks
        from dead_letter l where redrive.sink is null or l.sink = redrive.sink;
    else
        select array_agg(l.message_id), array_agg(l.sink) into v_ids, v_sinks
        from (select distinct i.id from unnest(redrive.message_ids) i (id)) i
        join dead_letter l on l.message_id = i.id
        where redrive.sink is null or l.sink = redrive.sink;
    end if;
    v_count := redrive_letters(v_ids, v_sinks);
    perform write_audit(redrive.actor, 'redrive', jsonb_build_object(
        'message_ids', redrive.message_ids, 'all_dead', nullif(redrive.all_dead, false), 'sink', redrive.sink), v_count);
    return v_count;
end
$$;
comment on function :"schema".redrive is 'Puts dead letters back to pending with a new attempt budget; returns how many.';

-- The same for dead letters that are described instead of named, at most `at_most` of them, the oldest first: whoever
-- wants all calls again until it returns 0. What is not given does not matter; nothing given means every dead letter.
-- Locks: see change_dead; two operators at once get different ones. Zero: nothing matches that nobody else just takes.
create or replace function :"schema".redrive_matching(
    message_ids uuid[] default null, sink text default null, namespace text default null, topic text default null,
    tenant_id uuid default null, lane text default null, reason text default null, error_code text default null,
    died_from timestamptz default null, died_to timestamptz default null, at_most integer default 1000,
    actor text default null
)
    returns integer
    language sql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select change_dead('redrive', message_ids, sink, namespace, topic, tenant_id, lane, reason, error_code, died_from, died_to,
                       at_most, actor)
$$;
comment on function :"schema".redrive_matching is
    'Puts the oldest dead letters of a kind back to pending; returns how many.';

-- What both do, for pairs of message and sink. Internal.
create or replace function :"schema".redrive_letters(message_ids uuid[], sinks text[])
    returns integer
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_now    timestamptz;
    v_count  integer;
begin
    perform refuse_stale_snapshot();
    -- Lock, then look: first the letters, then the lanes, whose leases are known once no claim is under way there.
    perform hold_lane_fronts(array_agg(s.sink))
    from (
        select distinct l.sink
        from (
            select i.id, i.sink from unnest(redrive_letters.message_ids, redrive_letters.sinks) i (id, sink)
            order by i.id, i.sink
        ) i
        cross join lateral (
            select l.sink, l.lane from dead_letter l where l.message_id = i.id and l.sink = i.sink offset 0 for update
        ) l
        where l.lane is not null
    ) s;
    v_now := clock_timestamp();
    -- By place: letters are locked, and nobody else touches a parked head.
    with chosen as materialized (
        select l.*, p.place as parked_place
        from unnest(redrive_letters.message_ids, redrive_letters.sinks) i (id, sink)
        cross join lateral (
            select l.ctid as place, l.* from dead_letter l where l.message_id = i.id and l.sink = i.sink offset 0
        ) l
        left join lateral (
            select d.ctid as place from delivery d
            where l.parked and d.message_id = l.message_id and d.sink = l.sink
            offset 0
        ) p on true
    ),
    resurrected as (
        delete from dead_letter l using chosen c where l.ctid = c.place
    ),
    unparked as (
        update delivery d set due_at = v_now, attempt_count = 0 from chosen c where d.ctid = c.parked_place
    ),
    put_back as (
        insert into delivery (message_id, due_at, priority, size_bytes, sequence_id, tenant_id, sink, lane, attempt_no,
                              lane_tail)
        -- Asked once for each lane, and without a join: here that would compare every letter with every lane.
        select f.message_id, v_now, f.priority, f.size_bytes, f.sequence_id, f.tenant_id, f.sink, f.lane, f.attempt_no,
               max(case when f.nth = 1 and f.lane is not null then lane_reach(f.sink, f.lane) end)
                   over (partition by f.sink, f.lane)
        from (select c.*, row_number() over (partition by c.sink, c.lane) as nth from chosen c where not c.parked) f
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
comment on function :"schema".redrive_letters is 'Internal: what redrive and redrive_matching do.';
