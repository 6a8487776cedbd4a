-- Picks and locks runs of lane deliveries: from each free lane, its lowest numbers in sequence.
-- Caller: claim_lanes, in whose transaction the locks stand and with claim's planner settings. Internal.
-- Locks: each picked row, FOR UPDATE SKIP LOCKED. A claimer that cannot lock a lane's head leaves the lane alone.
-- Index: delivery_lane (delivery_lane_of_tenant to find one tenant's lanes). It hops from lane head to lane head,
--   beginning after `after_lane`, so a blocked lane costs one probe, whatever waits in it. At most `hop_limit` heads
--   are looked at; the caller goes on from the last one.
-- A lane is free when its lowest number is due and nobody holds anything in it. Where somebody may, is known: the numbers
--   handed out together with the head (lane_tail). Each lease found there must have ended and its row must be locked
--   here: one that is just being renewed cannot be, and the lane stays with its holder.
-- A head that failed and was put off goes alone: if it fails again, nothing behind it was leased in vain.
-- Lock, then check: a row that changed since this statement began is not taken (its xmin tells), and neither is
-- anything behind it in its lane.
-- Most lanes are fresh: nothing was ever handed out of what is in them now, so nobody can hold anything there, and a run is
-- what is locked without a gap. All the rules above are asked only of the others.
-- Returns where each row stands, its id, how much is sent for it, whether it was tried before, lane and number. Zero rows: every lane up to `up_to_lane` was looked at and none is free. at_limit: the hop
-- limit was reached at this lane (place is null if it is not free).
create or replace function :"schema".claim_lane_runs(
    sink text, tenant_id text, room integer, at_time timestamptz, max_attempts integer,
    lane_run integer, after_lane text, up_to_lane text, hop_limit integer
)
    returns table (
        place tid, message_id uuid, size_bytes integer, tried boolean, lane text, sequence_id bigint, at_limit boolean
    )
    language plpgsql rows 100
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
begin
    return query
    with recursive hop as (
        -- No lane, only where the first hop begins. A lane is fresh if nothing was ever handed out of what is in it now.
        select claim_lane_runs.after_lane collate "C" as lane, 0::bigint as sequence_id, false as open, false as fresh, 0 as hops
        union all
        select n.lane, n.sequence_id, n.open, n.fresh, l.hops + 1
        from hop l
        cross join lateral (
            (select d.lane, d.sequence_id,
                    d.due_at <= claim_lane_runs.at_time
                    and (d.lease_expires_at is null or d.lease_expires_at <= claim_lane_runs.at_time) as open,
                    num_nonnulls(d.lane_tail, d.lease_token) + d.attempt_count = 0 as fresh
             from delivery d
             where claim_lane_runs.tenant_id is null
               and d.sink = claim_lane_runs.sink and d.lane > l.lane and d.lane is not null
             order by d.lane, d.sequence_id limit 1)
            union all
            -- In the words of the tenants' index. The lowest number of a tenant in a lane need not be the lane's: its head is
            -- asked for.
            (select t.lane, h.sequence_id, h.open, h.fresh
             from (
                 select d.lane from delivery d
                 where claim_lane_runs.tenant_id is not null
                   and d.sink = claim_lane_runs.sink and d.tenant_id = claim_lane_runs.tenant_id
                   and num_nonnulls(d.lane) = 1 and num_nonnulls(d.tenant_id) = 1
                   and d.lane > l.lane
                 order by d.lane, d.sequence_id limit 1
             ) t
             cross join lateral (
                 select d.sequence_id,
                        d.due_at <= claim_lane_runs.at_time
                        and (d.lease_expires_at is null or d.lease_expires_at <= claim_lane_runs.at_time) as open,
                        num_nonnulls(d.lane_tail, d.lease_token) + d.attempt_count = 0 as fresh
                 from delivery d
                 where d.sink = claim_lane_runs.sink and d.lane = t.lane and d.lane is not null
                 order by d.sequence_id limit 1
             ) h)
        ) n
        where l.hops < claim_lane_runs.hop_limit
          and (claim_lane_runs.up_to_lane is null or n.lane <= claim_lane_runs.up_to_lane)
    )
    select r.place, r.message_id, r.size_bytes, r.tried, l.lane, r.sequence_id, l.hops = claim_lane_runs.hop_limit
    from hop l
    left join lateral (
        -- A fresh lane, as most are. Of what is fresh and locked, in the order of the numbers, as much as has no gap.
        select f.place, f.message_id, f.size_bytes, false as tried, f.sequence_id
        from (
            select o.*, count(*) over low_to_high = max(o.nth) over low_to_high as unbroken
            from (
                select d.ctid as place, d.message_id, d.size_bytes, d.sequence_id, w.nth
                from (
                    select d.ctid as place, d.xmin as version, row_number() over () as nth,
                           d.due_at <= claim_lane_runs.at_time
                           and num_nonnulls(d.lane_tail, d.lease_token) + d.attempt_count = 0
                           and (claim_lane_runs.tenant_id is null or d.tenant_id = claim_lane_runs.tenant_id) as free
                    from (
                        select d.ctid, d.xmin, d.* from delivery d
                        where d.sink = claim_lane_runs.sink and d.lane = l.lane and d.lane is not null
                          and d.sequence_id >= l.sequence_id
                        order by d.sequence_id
                        limit least(claim_lane_runs.lane_run, claim_lane_runs.room)
                    ) d
                ) w
                join delivery d on d.ctid = w.place
                where w.free and d.xmin = w.version
                for update of d skip locked
            ) o
            window low_to_high as (rows unbounded preceding)
        ) f
        where l.open and l.fresh and f.unbroken
        union all
        (with lowest as materialized (
            select d.ctid as place, d.xmin as version, d.sequence_id, d.lane_tail, d.lease_token is not null as leased,
                   row_number() over (order by d.sequence_id) as nth, d.attempt_count, d.due_at, d.lease_expires_at,
                   d.due_at <= claim_lane_runs.at_time
                   and (d.lease_expires_at is null or d.lease_expires_at <= claim_lane_runs.at_time)
                   and (claim_lane_runs.tenant_id is null or d.tenant_id = claim_lane_runs.tenant_id) as free
            from delivery d
            where l.open and not l.fresh
              and d.sink = claim_lane_runs.sink and d.lane = l.lane and d.lane is not null
              and d.sequence_id >= l.sequence_id
            order by d.sequence_id
            limit least(claim_lane_runs.lane_run, claim_lane_runs.room)
        ),
        wanted as (
            select w.place, w.version, w.leased, w.lease_expires_at,
                   case when bool_and(w.free) over low_to_high
                             and (w.nth = 1 or not (
                                 bool_or(w.attempt_count >= claim_lane_runs.max_attempts) over low_to_high
                                 or (first_value(w.attempt_count) over low_to_high > 0
                                     and first_value(w.due_at) over low_to_high > w.due_at)))
                        then w.nth end as nth
            from lowest w
            window low_to_high as (order by w.nth)
            union all
            -- What was handed out with the head and is not among its lowest.
            select t.ctid, t.xmin, true, t.lease_expires_at, null
            from (select min(w.lane_tail) filter (where w.nth = 1) as lane_tail, max(w.sequence_id) as sequence_id
                  from lowest w) h
            cross join lateral (
                select d.ctid, d.xmin, d.lease_expires_at, d.lease_token from delivery d
                where d.sink = claim_lane_runs.sink and d.lane = l.lane and d.lane is not null
                  and d.sequence_id > h.sequence_id and d.sequence_id <= h.lane_tail
                order by d.sequence_id
            ) t
            where t.lease_token is not null
        ),
        locked as (
            select d.ctid as place, d.message_id, d.size_bytes, d.sequence_id, d.attempt_count > 0 as tried, w.nth, w.leased,
                   w.leased_in_all
            from (
                select w.*, count(*) filter (where w.leased) over () as leased_in_all,
                       coalesce(bool_or(w.lease_expires_at > claim_lane_runs.at_time) over (), false) as one_lives
                from wanted w
            ) w
            join delivery d on d.ctid = w.place
            where not w.one_lives and (w.leased or w.nth is not null) and d.xmin = w.version
            for update of d skip locked
        )
        select k.place, k.message_id, k.size_bytes, k.tried, k.sequence_id
        from (
            select o.*, row_number() over (order by o.nth) as locked_nth,
                   count(*) filter (where o.leased) over () as leased_and_locked
            from locked o
        ) k
        where l.open and not l.fresh and k.nth = k.locked_nth and k.leased_and_locked = k.leased_in_all
        order by k.nth)
    ) r on true
    where r.place is not null or l.hops = claim_lane_runs.hop_limit
    limit claim_lane_runs.room;
end
$$;
comment on function :"schema".claim_lane_runs is 'Internal to claim_lanes: locks runs of free lanes.';
