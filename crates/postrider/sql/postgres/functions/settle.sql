-- Closes what is open about locked deliveries before they are leased anew or freed: a lease that ended without an
-- outcome gets its ZOMBIE_REQUEUE attempt, and a delivery out of attempts is buried.
-- Caller: claim, repair_expired_leases and unclaim_stuck, which hold the rows' locks and have decided that these leases
-- are over. Internal. The lease itself is left on rows that live on: the caller overwrites or clears it.
-- max_attempts null: the limit each delivery was last claimed with. Returns how many leases it closed.
-- Index: delivery_pk, by the ids alone: with a join, or with the sink as a second condition (`is not distinct from` is an
--   equality that no index serves), a plan that was made on an empty table would read everything.
create or replace function :"schema".settle(
    sink text, message_ids uuid[], max_attempts integer, at_time timestamptz
)
    returns integer language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
    set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
declare
    v_closed  integer;
    v_spent   uuid[];
begin
    insert into attempt (message_id, sink, attempt_no, state, claimed_at, completed_at, worker_id, error_code,
                         error_message)
    select d.message_id, d.sink, d.attempt_no, 'ZOMBIE_REQUEUE', d.claimed_at, settle.at_time, d.claimed_by,
           'LEASE_EXPIRED', 'the lease ended before the worker reported an outcome'
    from delivery d
    where d.message_id = any (settle.message_ids) and d.sink is not distinct from settle.sink
      and d.lease_token is not null;
    get diagnostics v_closed = row_count;

    v_spent := array(
        select d.message_id from delivery d
        where d.message_id = any (settle.message_ids) and d.sink is not distinct from settle.sink
          and d.attempt_count >= coalesce(settle.max_attempts, d.max_attempts));
    if v_spent <> '{}' then
        perform bury(settle.sink, v_spent, settle.at_time);
    end if;
    return v_closed;
end
$$;
comment on function :"schema".settle is 'Internal: records ended leases and buries what is out of attempts.';
