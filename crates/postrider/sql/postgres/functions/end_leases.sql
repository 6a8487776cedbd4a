-- Ends what is over among locked deliveries: a lease gets its ZOMBIE_REQUEUE attempt, a delivery out of attempts dies.
-- Caller: claim (before it leases anew), repair_expired_leases and unclaim_stuck, which hold the rows' locks and have
-- decided that these leases are over. Internal.
-- Transition: leased -> pending (due as before), or -> dead letter if attempt_count has reached max_attempts.
-- max_attempts null: the limit each delivery was last claimed with. Returns how many leases were ended.
create or replace function :"schema".end_leases(
    sink text, message_ids uuid[], max_attempts integer, at_time timestamptz
)
    returns integer
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off
as $$
#variable_conflict use_column
declare
    v_ended integer;
    v_spent uuid[];
begin
    -- In the usual claim there is nothing to end: this one look is all it costs.
    select count(*) filter (where d.lease_token is not null),
           array_agg(d.message_id) filter (where d.attempt_count >= coalesce(end_leases.max_attempts, d.max_attempts))
    into v_ended, v_spent
    from unnest(end_leases.message_ids) i (id)
    join delivery d on d.message_id = i.id and d.sink = end_leases.sink
    where d.lease_token is not null or d.attempt_count >= coalesce(end_leases.max_attempts, d.max_attempts);

    if v_ended > 0 then
        insert into attempt (message_id, sink, attempt_no, state, claimed_at, completed_at, worker_id, error_code,
                             error_message)
        select d.message_id, d.sink, d.attempt_no, 'ZOMBIE_REQUEUE', d.claimed_at, end_leases.at_time, d.claimed_by,
               'LEASE_EXPIRED', 'the lease ended before the worker reported an outcome'
        from unnest(end_leases.message_ids) i (id)
        join delivery d on d.message_id = i.id and d.sink = end_leases.sink
        where d.lease_token is not null;
        update delivery d
        set claimed_at = null, lease_expires_at = null, lease_token = null, claimed_by = null
        from unnest(end_leases.message_ids) i (id)
        where d.message_id = i.id and d.sink = end_leases.sink and d.lease_token is not null;
    end if;
    if v_spent is not null then
        perform bury(end_leases.sink, v_spent, 'ATTEMPTS_EXHAUSTED', end_leases.at_time);
    end if;
    return v_ended;
end
$$;
comment on function :"schema".end_leases(text, uuid[], integer, timestamptz) is
    'Internal: records ended leases and buries what is out of attempts.';
