-- Brings pending deliveries to the sinks that today's routes name: routes bind when a message is enqueued, so what was written
-- before a route existed stays where it was until somebody calls this.

-- What would change, a row for each pending delivery that is concerned. Internal: called by apply_routes. `missing`: sinks that
-- the routes name and that never had the message (no delivery, no dead letter, no attempt). `gone`: no route names the
-- delivery's own sink, it never had an attempt, and a sink that is named has the message pending or leased, or gets it now.
-- In a lane only what stands before the first that is leased or parked: what is behind it would overtake it.
-- `sinks`: lanes of these alone, null for all. `places`: these rows alone, which the caller has locked.
-- Reads the hot table and the messages of what is pending, once. Locks: none.
create or replace function :"schema".route_changes(sinks text[], places tid[])
    returns table (
        place tid, message_id uuid, source text, occurred_at timestamptz, due_at timestamptz, priority integer,
        size_bytes integer, sequence_id bigint, tenant_id text, lane text, missing text[], gone boolean
    )
    language sql stable
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    with held as materialized (
        select d.sink, d.lane, min(d.sequence_id) as sequence_id
        from delivery d
        where route_changes.places is null and d.lane is not null
          and (d.lease_token is not null or d.due_at = 'infinity')
        group by d.sink, d.lane
    ),
    pending as (
        select d.ctid as place, d.* from delivery d
        left join held h on h.sink = d.sink and h.lane = d.lane
        where d.lease_token is null and d.due_at < 'infinity'
          -- Hashed: with `= any` every row would be compared with every place.
          and (route_changes.places is null or d.ctid in (select unnest(route_changes.places)))
          and (d.lane is null or route_changes.sinks is null or d.sink = any (route_changes.sinks))
          and (h.sequence_id is null or d.sequence_id < h.sequence_id)
    )
    select p.place, p.message_id, p.sink, p.occurred_at,
           case when p.attempt_no = 0 then p.due_at else clock_timestamp() end, p.priority, p.size_bytes, p.sequence_id, p.tenant_id, p.lane, n.missing, n.gone
    from pending p
    join message m on m.id = p.message_id
    cross join lateral (
        select coalesce(array_agg(distinct r.sink), array['default']) as sinks
        from route r where r.namespace in ('*', m.namespace) and m.topic like r.topic_like
    ) w
    cross join lateral (
        select coalesce(array_agg(s.sink) filter (where s.is_new), '{}') as missing,
               p.attempt_no = 0 and p.sink <> all (w.sinks) and bool_or(s.is_new or s.is_open) as gone
        from (
            select u.sink, o.is_open is null
                           and not exists (select from dead_letter l where l.message_id = p.message_id and l.sink = u.sink)
                           and not exists (select from attempt a where a.message_id = p.message_id and a.sink = u.sink)
                           as is_new,
                   coalesce(o.is_open, false) as is_open
            from unnest(w.sinks) u (sink)
            left join lateral (
                select d.due_at < 'infinity' as is_open from delivery d
                where d.message_id = p.message_id and d.sink = u.sink
            ) o on true
        ) s
    ) n
    where n.gone or cardinality(n.missing) > 0
$$;
comment on function :"schema".route_changes is 'Internal to apply_routes: pending deliveries that today''s routes would change.';

-- Caller: an operator, after routes were changed; audited. Transition: pending -> pending at another sink: the deliveries that
--   are missing are added, due when the pending one was; those that are no longer meant go. A delivery that had an attempt
--   stays, and so does what is leased, parked or dead. At most `at_most` pending deliveries are looked after: whoever wants
--   all calls again until both counts are 0. `dry_run`: counts all of them, and changes, locks and writes nothing.
-- READ COMMITTED only (25001 otherwise): it looks again after it has waited.
-- Locks: the front of the lanes of every sink that is named or has lanes (see hold_lane_fronts), so that nobody claims from
--   them meanwhile; then the deliveries. In lanes it waits for whoever has a row (cancel and retry_now, which wait for
--   nobody), so that no number is passed by; outside of lanes, what a claim is just taking is passed by (SKIP LOCKED).
-- Zero: everything pending is where the routes want it, or in somebody's hand.
create or replace function :"schema".apply_routes(
    at_most integer default 1000, dry_run boolean default false, actor text default null,
    out added integer, out removed integer
)
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_custom_plan set jit = off
as $$
#variable_conflict use_column
declare
    v_sinks   text[];
    v_chosen  uuid[];
    v_from    text[];
    v_places  tid[];
begin
    perform refuse_unless(apply_routes.at_most between 1 and 10000, 'at_most must be between 1 and 10000');
    perform refuse_unless(apply_routes.dry_run is not null, 'dry_run must be true or false');
    if apply_routes.dry_run then
        with changes as materialized (select c.* from route_changes(null, null) c)
        select (select count(*) from (select distinct c.message_id, s.sink from changes c, unnest(c.missing) s (sink)) n),
               (select count(*) from changes c where c.gone)
        into added, removed;
        return;
    end if;
    perform refuse_stale_snapshot();
    with recursive laned as (
        (select d.sink from delivery d where d.lane is not null order by d.sink limit 1)
        union all
        select (select d.sink from delivery d where d.lane is not null and d.sink > l.sink order by d.sink limit 1)
        from laned l where l.sink is not null
    )
    select array_agg(s.sink) into v_sinks
    from (select 'default' collate "C" as sink union select r.sink from route r
          union select l.sink from laned l where l.sink is not null) s;
    perform hold_lane_fronts(v_sinks);
    -- In the order of lanes: a step moves the front of a lane, never its middle.
    select array_agg(c.message_id), array_agg(c.source) into v_chosen, v_from
    from (select c.message_id, c.source from route_changes(v_sinks, null) c
          order by c.lane collate "C" nulls first, c.sequence_id, c.message_id, c.source collate "C"
          limit apply_routes.at_most) c;
    -- By key: a row that was changed while it was waited for has another place.
    select array_agg(k.place) into v_places
    from (
        select d.ctid as place from delivery d
        join unnest(v_chosen, v_from) c (message_id, sink) on d.message_id = c.message_id and d.sink = c.sink
        where d.lane is not null and d.lease_token is null
        for update of d
    ) k;
    select v_places || array_agg(k.place) into v_places
    from (
        select d.ctid as place from delivery d
        join unnest(v_chosen, v_from) c (message_id, sink) on d.message_id = c.message_id and d.sink = c.sink
        where d.lane is null and d.lease_token is null
        for update of d skip locked
    ) k;
    with changes as materialized (
        select c.* from route_changes(v_sinks, coalesce(v_places, '{}')) c
    ),
    moved as (
        select distinct on (c.message_id, s.sink) c.*, s.sink
        from changes c cross join unnest(c.missing) s (sink)
        order by c.message_id, s.sink, c.due_at
    ),
    put as (
        insert into delivery as d (message_id, occurred_at, due_at, priority, size_bytes, sequence_id, tenant_id, sink,
                                   lane, lane_tail)
        select f.message_id, f.occurred_at, f.due_at, f.priority, f.size_bytes, f.sequence_id, f.tenant_id, f.sink, f.lane,
               max(case when f.nth = 1 and f.lane is not null then lane_reach(f.sink, f.lane) end)
                   over (partition by f.sink, f.lane)
        from (select m.*, row_number() over (partition by m.sink, m.lane) as nth from moved m) f
        order by f.message_id, f.sink
        on conflict do nothing
        returning d.message_id
    ),
    taken as (
        delete from delivery d using changes c where d.ctid = c.place and c.gone
        returning d.message_id
    )
    select (select count(*) from put), (select count(*) from taken) into added, removed;
    if added > 0 then
        perform notify_sleepers();
    end if;
    perform write_audit(apply_routes.actor, 'apply_routes', jsonb_build_object('at_most', apply_routes.at_most),
                        added + removed);
end
$$;
comment on function :"schema".apply_routes is
    'Brings pending deliveries to the sinks that today''s routes name; returns how many were added and removed.';
grant execute on function :"schema".apply_routes to :"operator";
