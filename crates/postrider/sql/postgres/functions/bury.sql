-- Makes deliveries of one sink that are out of attempts dead letters, with the error of their last attempt.
-- Caller: settle, which holds the rows' locks. Internal; complete_many does the same for rows it still leases.
-- Transition: pending, or leased with a lease that is over -> dead. A lane head in a sink whose on_dead is `park` keeps its row with due_at = infinity,
-- which holds the lane; anything else leaves the hot table. Index: delivery_pk, by the id alone (see settle).
create or replace function :"schema".bury(sink text, message_ids uuid[], at_time timestamptz)
    returns void language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
    set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
declare
    v_parks constant boolean := parks(bury.sink);
begin
    insert into dead_letter (message_id, sink, died_at, reason, priority, size_bytes, tenant_id, lane, sequence_id,
                             attempt_no, attempt_count, parked, error_code, error_message)
    select d.message_id, d.sink, bury.at_time, 'ATTEMPTS_EXHAUSTED', d.priority, d.size_bytes, d.tenant_id, d.lane, d.sequence_id,
           d.attempt_no, d.attempt_count, d.lane is not null and v_parks, a.error_code, a.error_message
    from delivery d
    left join lateral (
        select t.error_code, t.error_message from attempt t
        where t.message_id = d.message_id and t.sink = d.sink and t.attempt_no = d.attempt_no
        offset 0
    ) a on true
    where d.message_id = any (bury.message_ids) and d.sink is not distinct from bury.sink;

    delete from delivery d
    where d.message_id = any (bury.message_ids) and d.sink is not distinct from bury.sink and not (d.lane is not null and v_parks);

    update delivery d
    set due_at = 'infinity', claimed_at = null, lease_expires_at = null, lease_token = null, claimed_by = null
    where d.message_id = any (bury.message_ids) and d.sink is not distinct from bury.sink and d.lane is not null and v_parks;
end
$$;
comment on function :"schema".bury is 'Internal: deliveries out of attempts become dead letters.';

-- Whether a dead lane head holds its lane in this sink. Internal.
create or replace function :"schema".parks(sink text)
    returns boolean language sql stable
    set search_path = pg_catalog, :"schema", pg_temp
as $$ select coalesce((select s.on_dead = 'park' from sink s where s.name = parks.sink), true) $$;
comment on function :"schema".parks is 'Internal: true unless the sink skips dead lane heads.';
