-- What an operator does with dead letters: redrives them, gives them up, or lets a parked lane go on without its dead head.
-- Each is audited. Named letters are locked in id order; described ones are taken as far as nobody else has them.

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
    returns integer language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_ids    uuid[];
    v_sinks  text[];
begin
    perform refuse_unless((redrive.message_ids is null) = coalesce(redrive.all_dead, false),
                          'name message_ids or say all_dead => true, exactly one');
    if redrive.all_dead then
        select array_agg(l.message_id), array_agg(l.sink) into v_ids, v_sinks
        from dead_letter l where redrive.sink is null or l.sink = redrive.sink;
    else
        select array_agg(l.message_id), array_agg(l.sink) into v_ids, v_sinks
        from (select distinct i.id from unnest(redrive.message_ids) i (id)) i
        join dead_letter l on l.message_id = i.id
        where redrive.sink is null or l.sink = redrive.sink;
    end if;
    return write_audit(redrive.actor, 'redrive', jsonb_build_object(
        'message_ids', redrive.message_ids, 'all_dead', nullif(redrive.all_dead, false), 'sink', redrive.sink),
        change_letters('redrive', v_ids, v_sinks));
end
$$;
comment on function :"schema".redrive is 'Puts dead letters back to pending with a new attempt budget; returns how many.';
grant execute on function :"schema".redrive to :"operator";

-- Redrives dead letters that are described instead of named, at most `at_most` of them, the oldest first: whoever
-- wants all calls again until it returns 0. What is not given does not matter; nothing given means every dead letter.
-- Locks: see change_dead; two operators at once get different ones. Zero: nothing matches that nobody else just takes.
create or replace function :"schema".redrive_matching(
    message_ids uuid[] default null, sink text default null, namespace text default null, topic text default null,
    tenant_id text default null, lane text default null, reason text default null, error_code text default null,
    died_from timestamptz default null, died_to timestamptz default null, at_most integer default 1000, actor text default null
)
    returns integer language sql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$ select change_dead('redrive', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) $$;
comment on function :"schema".redrive_matching is 'Redrives the oldest dead letters of a kind; returns how many.';
grant execute on function :"schema".redrive_matching to :"operator";

-- Gives up dead letters that are described instead of named, as in redrive_matching; see discard.
create or replace function :"schema".discard_matching(
    message_ids uuid[] default null, sink text default null, namespace text default null, topic text default null,
    tenant_id text default null, lane text default null, reason text default null, error_code text default null,
    died_from timestamptz default null, died_to timestamptz default null, at_most integer default 1000, actor text default null
)
    returns integer language sql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$ select change_dead('discard', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) $$;
comment on function :"schema".discard_matching is 'Discards the oldest dead letters of a kind; returns how many.';
grant execute on function :"schema".discard_matching to :"operator";

-- Gives up dead letters for good. The message and its attempts stay as history until retention takes them.
-- Caller: an operator; audited. Transition: dead -> discarded; a parked lane goes on with its next number.
-- Locks: the dead letters, in id order. Zero: nothing named is dead.
create or replace function :"schema".discard(message_ids uuid[], sink text default null, actor text default null)
    returns integer language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_ids    uuid[];
    v_sinks  text[];
begin
    perform refuse_unless(discard.message_ids is not null, 'message_ids must not be null');
    select array_agg(l.message_id), array_agg(l.sink) into v_ids, v_sinks
    from (select distinct i.id from unnest(discard.message_ids) i (id)) i
    join dead_letter l on l.message_id = i.id
    where discard.sink is null or l.sink = discard.sink;
    return write_audit(discard.actor, 'discard', jsonb_build_object(
        'message_ids', discard.message_ids, 'sink', discard.sink), change_letters('discard', v_ids, v_sinks));
end
$$;
comment on function :"schema".discard is 'Gives up dead letters for good; returns how many.';
grant execute on function :"schema".discard to :"operator";

-- Lets a parked lane go on without its dead head, which stays a dead letter: redrive it or discard it later.
-- Caller: an operator; audited. Transition: the head's place in the queue goes; dead stays dead, and no longer parks.
-- Locks: the dead letter, then its delivery, as redrive and discard do: one of them wins.
-- Index: delivery_lane. Zero: the lane's head is not dead, or there is no such lane.
create or replace function :"schema".skip(sink text, lane text, actor text default null)
    returns integer language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_count integer;
begin
    perform refuse_unless(octet_length(skip.sink) between 1 and 255 and octet_length(skip.lane) between 1 and 255,
                          'sink and lane must each be 1 to 255 bytes of text');
    with head as materialized (
        select d.ctid as place, d.message_id, d.due_at from delivery d
        where d.sink = skip.sink and d.lane = skip.lane and d.lane is not null
        order by d.sequence_id
        limit 1
    ),
    chosen as materialized (
        select l.place, h.place as head_place from head h
        cross join lateral (
            select l.ctid as place from dead_letter l
            where l.message_id = h.message_id and l.sink is not distinct from skip.sink and l.parked
            offset 0 for update
        ) l
        where h.due_at = 'infinity'
    ),
    passed_by as (
        update dead_letter l set parked = false from chosen c where l.ctid = c.place
    ),
    freed as (
        delete from delivery d using chosen c where d.ctid = c.head_place
    )
    select count(*) into v_count from chosen;
    if v_count > 0 then
        perform notify_sleepers();
    end if;
    return write_audit(skip.actor, 'skip', jsonb_build_object('sink', skip.sink, 'lane', skip.lane), v_count);
end
$$;
comment on function :"schema".skip is
    'A parked lane goes on without its dead head, which stays a dead letter; returns 1, or 0 if it is not parked.';
grant execute on function :"schema".skip to :"operator";

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
