-- Picks and locks runs of lane deliveries: from each free lane, its lowest numbers in sequence.
-- Caller: claim_lanes, in whose transaction the locks stand. Internal.
-- Locks: each picked row, FOR UPDATE SKIP LOCKED. A claimer that cannot lock a lane's head leaves the lane alone.
-- Index: delivery_lane (delivery_lane_of_tenant to find one tenant's lanes). It hops from lane head to lane head,
--   beginning after `after_lane`, so a blocked lane costs one probe, whatever waits in it. At most `hop_limit` heads
--   are looked at; the caller goes on from the last one.
-- A lane is free when its lowest number is due, unleased (or its lease has ended), and no lease lives on the numbers
-- handed out together with it (lane_tail): a lane is in one hand at a time.
-- A head that failed and was put off goes alone: if it fails again, nothing behind it was leased in vain.
-- Lock, then check: a row that changed since this statement began is not taken (its xmin tells), and neither is
-- anything behind it in its lane.
-- Returns what claim_due returns, and the lane with the last number picked from it. Zero rows: every lane up to
-- `up_to_lane` was looked at and none is free. at_limit: the hop limit was reached at this lane (place is null if it
-- is not free).
create or replace function :"schema".claim_lane_runs(
    sink text, tenant_id uuid, room integer, at_time timestamptz, max_attempts integer,
    lane_run integer, after_lane text, up_to_lane text, hop_limit integer
)
    returns table (place tid, unsettled_id uuid, lane text, lane_tail bigint, at_limit boolean)
    language plpgsql
    rows 100
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off
as $$
#variable_conflict use_column
begin
    return query
    with recursive hop as (
        -- No lane, only where the first hop begins.
        select claim_lane_runs.after_lane collate "C" as lane, false as open, 0 as hops
        union all
        select n.lane, n.open, l.hops + 1
        from hop l
        cross join lateral (
            (select d.lane, d.due_at <= claim_lane_runs.at_time
                    and (d.lease_expires_at is null or d.lease_expires_at <= claim_lane_runs.at_time) as open
             from delivery d
             where claim_lane_runs.tenant_id is null
               and d.sink = claim_lane_runs.sink and d.lane > l.lane and d.lane is not null
             order by d.lane, d.sequence_id limit 1)
            union all
            -- The lowest number of a tenant in a lane need not be the lane's: its head is asked for.
            (select d.lane,
                    (select h.due_at <= claim_lane_runs.at_time
                            and (h.lease_expires_at is null or h.lease_expires_at <= claim_lane_runs.at_time)
                     from delivery h
                     where h.sink = claim_lane_runs.sink and h.lane = d.lane and h.lane is not null
                     order by h.sequence_id limit 1)
             from delivery d
             where claim_lane_runs.tenant_id is not null
               and d.sink = claim_lane_runs.sink and d.tenant_id = claim_lane_runs.tenant_id
               and d.lane > l.lane and d.lane is not null
             order by d.lane limit 1)
        ) n
        where l.hops < claim_lane_runs.hop_limit
          and (claim_lane_runs.up_to_lane is null or n.lane <= claim_lane_runs.up_to_lane)
    )
    select r.place, r.unsettled_id, l.lane, r.lane_tail, l.hops = claim_lane_runs.hop_limit
    from hop l
    left join lateral (
        select k.place, k.unsettled_id, max(k.sequence_id) over () as lane_tail
        from (
            select o.place, o.unsettled_id, o.sequence_id, o.nth, row_number() over (order by o.nth) as locked_nth
            from (
                select d.ctid as place,
                       case when d.lease_token is not null or p.one_exhausted then d.message_id end as unsettled_id,
                       d.sequence_id, p.nth
                from (
                    select w.place, w.version, w.nth,
                           bool_and(w.free and not (w.nth = 1 and w.lane_tail > w.sequence_id and exists (
                               select from delivery t
                               where t.sink = claim_lane_runs.sink and t.lane = l.lane and t.lane is not null
                                 and t.sequence_id > w.sequence_id and t.sequence_id <= w.lane_tail
                                 and t.lease_expires_at > claim_lane_runs.at_time))) over low_to_high as all_free,
                           bool_or(w.exhausted) over low_to_high as one_exhausted,
                           first_value(w.attempt_count) over low_to_high > 0
                           and first_value(w.due_at) over low_to_high > w.due_at as behind_a_retry
                    from (
                        select d.ctid as place, d.sequence_id, d.xmin as version, d.lane_tail,
                               row_number() over (order by d.sequence_id) as nth,
                               d.due_at <= claim_lane_runs.at_time
                               and (d.lease_expires_at is null or d.lease_expires_at <= claim_lane_runs.at_time)
                               and (claim_lane_runs.tenant_id is null or d.tenant_id = claim_lane_runs.tenant_id) as free,
                               d.attempt_count >= claim_lane_runs.max_attempts as exhausted, d.attempt_count, d.due_at
                        from delivery d
                        where l.open and d.sink = claim_lane_runs.sink and d.lane = l.lane and d.lane is not null
                        order by d.sequence_id
                        limit least(claim_lane_runs.lane_run, claim_lane_runs.room)
                    ) w
                    window low_to_high as (order by w.sequence_id)
                ) p
                join delivery d on d.ctid = p.place
                where p.all_free and (p.nth = 1 or not (p.one_exhausted or p.behind_a_retry))
                  and d.xmin = p.version and d.due_at <= claim_lane_runs.at_time
                  and (d.lease_expires_at is null or d.lease_expires_at <= claim_lane_runs.at_time)
                order by p.nth
                for update of d skip locked
            ) o
        ) k
        where k.locked_nth = k.nth
    ) r on true
    where r.place is not null or l.hops = claim_lane_runs.hop_limit
    limit claim_lane_runs.room;
end
$$;
comment on function :"schema".claim_lane_runs(text, uuid, integer, timestamptz, integer, integer, text, text, integer) is
    'Internal to claim_lanes: locks runs of free lanes.';
