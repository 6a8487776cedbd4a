-- Picks and locks up to `room` due deliveries without a lane: priority first, then due time, then id.
-- Caller: claim, in whose transaction the locks stand. Internal.
-- Locks: each picked row, FOR UPDATE SKIP LOCKED, so claimers neither overlap nor wait.
-- Index: delivery_due, or delivery_due_of_tenant for one tenant. It hops from priority to priority, upwards and landing on
--   the latest due time of each: what was delivered since the last vacuum leaves its traces at the earliest. (Of a priority
--   that was delivered to its end they are all stepped over.) Then it reads what is due of each, the highest first, from
--   `due_from` on; what is not due yet costs two probes a priority, however much it is.
-- Returns where the row stands (its ctid, good while the lock is held), how much is sent for it, and its id if it needs
-- more than a lease: its last lease ended without an outcome, or it is out of attempts. Zero rows: nothing without a lane
-- is due.
create or replace function :"schema".claim_due(
    sink text, tenant_id uuid, room integer, at_time timestamptz, max_attempts integer, due_from timestamptz
)
    returns table (place tid, size_bytes integer, unsettled_id uuid) language plpgsql
    rows 100
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
    set jit = off
as $$
#variable_conflict use_column
begin
    return query
    with recursive level as (
        -- Below the lowest priority: only where the first hop begins.
        select -101 as priority
        union all
        select n.priority
        from level l
        cross join lateral (
            (select d.priority from delivery d
             where claim_due.tenant_id is null
               and d.sink = claim_due.sink and d.lane is null and d.priority > l.priority
             order by d.priority, d.due_at desc, d.message_id desc limit 1)
            union all
            -- In the words of the tenants' index, and of no other.
            (select d.priority from delivery d
             where claim_due.tenant_id is not null
               and d.sink = claim_due.sink and d.tenant_id = claim_due.tenant_id
               and num_nonnulls(d.lane) = 0 and num_nonnulls(d.tenant_id) = 1
               and d.priority > l.priority
             order by d.priority, d.due_at desc, d.message_id desc limit 1)
        ) n
    )
    select p.place, p.size_bytes, p.unsettled_id
    from (select v.priority from level v order by v.priority desc) l
    cross join lateral (
        select a.* from (
            select d.ctid as place, d.size_bytes,
                   case when d.lease_token is not null or d.attempt_count >= claim_due.max_attempts
                        then d.message_id end as unsettled_id
            from delivery d
            where claim_due.tenant_id is null
              and d.sink = claim_due.sink and d.lane is null and d.priority = l.priority
              and d.due_at <= claim_due.at_time and d.due_at >= claim_due.due_from
              and (d.lease_expires_at is null or d.lease_expires_at <= claim_due.at_time)
            order by d.due_at, d.message_id
            limit claim_due.room
            for update skip locked
        ) a
        union all
        select t.* from (
            select d.ctid as place, d.size_bytes,
                   case when d.lease_token is not null or d.attempt_count >= claim_due.max_attempts
                        then d.message_id end as unsettled_id
            from delivery d
            where claim_due.tenant_id is not null
              and d.sink = claim_due.sink and d.tenant_id = claim_due.tenant_id
              and num_nonnulls(d.lane) = 0 and num_nonnulls(d.tenant_id) = 1
              and d.priority = l.priority
              and d.due_at <= claim_due.at_time and d.due_at >= claim_due.due_from
              and (d.lease_expires_at is null or d.lease_expires_at <= claim_due.at_time)
            order by d.due_at, d.message_id
            limit claim_due.room
            for update skip locked
        ) t
    ) p
    limit claim_due.room;
end
$$;
comment on function :"schema".claim_due is 'Internal to claim: locks due deliveries without a lane.';

-- claim_due in arrays, and no more than room_bytes. at_least_one: the first is taken however large it is. `more`: one that
-- is due did not fit any more. Internal to claim.
create or replace function :"schema".pick_due(
    sink text, tenant_id uuid, room integer, room_bytes bigint, at_least_one boolean, at_time timestamptz,
    max_attempts integer, due_from timestamptz,
    out places tid[], out unsettled_ids uuid[], out bytes bigint, out more boolean
)
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
    select coalesce(array_agg(f.place) filter (where f.fits), '{}'),
           coalesce(array_agg(f.unsettled_id) filter (where f.fits and f.unsettled_id is not null), '{}'),
           coalesce(sum(f.size_bytes) filter (where f.fits), 0),
           coalesce(bool_or(not f.fits), false)
    into places, unsettled_ids, bytes, more
    from (
        select d.*, sum(d.size_bytes) over (order by d.nth) <= room_bytes or (at_least_one and d.nth = 1) as fits
        from claim_due(sink, tenant_id, room, at_time, max_attempts, due_from)
             with ordinality as d (place, size_bytes, unsettled_id, nth)
    ) f;
end
$$;
comment on function :"schema".pick_due is 'Internal to claim: claim_due, bounded in bytes.';
