-- Ends leases that ran out: ZOMBIE_REQUEUE is recorded and the delivery is pending again, or dead if out of attempts.
-- Caller: the reaper, or a scheduler. The claim does the same for what it meets; this finds the rest.
-- Locks: the expired rows, FOR UPDATE SKIP LOCKED: a worker that is just completing or renewing is left alone.
-- Index: none. Leases are not indexed (that would cost every claim its HOT update), so this reads the hot table once:
--   run it every half lease, not every second. Zero: no lease has ended.
create or replace function :"schema".repair_expired_leases(batch_size integer default 1000)
    returns integer language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
begin
    perform refuse_unless(repair_expired_leases.batch_size >= 1, 'batch_size must be at least 1');
    return end_stale_leases(repair_expired_leases.batch_size, clock_timestamp(), false);
end
$$;
comment on function :"schema".repair_expired_leases is
    'Returns deliveries whose lease ran out to the queue; returns how many.';
grant execute on function :"schema".repair_expired_leases to :"relay", :"operator";

-- For an operator, audited: frees leases that have ended. With `live` also leases that live: those taken at
-- least `older_than_seconds` ago, even if they are still being renewed, and those taken in the future: the clock was ahead or was set back,
-- and they would stand until then. So 0 with `live` frees every lease. A worker that still holds one is fenced off: its token
-- is no longer valid.
create or replace function :"schema".unclaim_stuck(
    older_than_seconds numeric, actor text default null, live boolean default false)
    returns integer language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
begin
    perform refuse_unless(unclaim_stuck.older_than_seconds between 0 and 3155760000,
                          'older_than_seconds must be between 0 and 3155760000');
    perform refuse_unless(unclaim_stuck.live is not null, 'live must be true or false');
    return write_audit(
        unclaim_stuck.actor, 'unclaim_stuck',
        jsonb_strip_nulls(jsonb_build_object('older_than_seconds', trim_scale(unclaim_stuck.older_than_seconds),
                                             'live', nullif(unclaim_stuck.live, false))),
        end_stale_leases(null, clock_timestamp() - unclaim_stuck.older_than_seconds * interval '1 second',
                         unclaim_stuck.live));
end
$$;
comment on function :"schema".unclaim_stuck is
    'Frees leases that have ended; with live also those taken so long ago or in the future. Returns how many.';
grant execute on function :"schema".unclaim_stuck to :"operator";

-- Internal: clears the leases of deliveries whose rows the caller holds. Index: delivery_pk, by the id alone (see settle).
create or replace function :"schema".end_leases(sink text, message_ids uuid[])
    returns void language sql volatile
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
    set jit = off
as $$
    update delivery d
    set claimed_at = null, lease_expires_at = null, lease_token = null, claimed_by = null
    where d.message_id = any (end_leases.message_ids) and d.sink is not distinct from end_leases.sink and d.lease_token is not null
$$;
comment on function :"schema".end_leases is 'Internal: clears leases that are over.';

-- Internal: ends leases that have ended, and with `live` those taken by `until` or in the future.
create or replace function :"schema".end_stale_leases(batch_size integer, until timestamptz, live boolean)
    returns integer language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_now    constant timestamptz := clock_timestamp();
    v_stale  record;
    v_ended  integer := 0;
begin
    for v_stale in
        select s.sink, array_agg(s.message_id order by s.message_id) as message_ids
        from (
            select d.sink, d.message_id from delivery d
            where d.lease_expires_at <= v_now
               or (end_stale_leases.live and d.lease_token is not null
                   -- The clock of this moment: a claim that was committed since v_now is not of the future.
                   and (d.claimed_at <= end_stale_leases.until or d.claimed_at > clock_timestamp()))
            limit end_stale_leases.batch_size
            for update skip locked
        ) s
        group by s.sink
        order by s.sink
    loop
        v_ended := v_ended + settle(v_stale.sink, v_stale.message_ids, null, v_now);
        perform end_leases(v_stale.sink, v_stale.message_ids);
    end loop;
    if v_ended > 0 then
        perform notify_sleepers();
    end if;
    return v_ended;
end
$$;
comment on function :"schema".end_stale_leases is 'Internal: finds and ends stale leases.';
