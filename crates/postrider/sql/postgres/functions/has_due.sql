-- Whether a claim could take something of a sink now, were it not for the locks of others: a claim passes by what is locked, so
-- its empty answer does not tell. Caller: a drain, before it says that nothing is due. Locks nothing.
-- Indexes: delivery_due (a walk over what is not due yet), delivery_lane (hops from head to head). False for a paused sink.
create or replace function :"schema".has_due(sink text, tenant_id text default null)
    returns boolean language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
as $$
#variable_conflict use_column
declare
    v_now constant timestamptz := clock_timestamp();
begin
    if exists (select from sink s where s.name = has_due.sink and s.paused) then
        return false;
    end if;
    -- In the order of the index: without it, a table that is taken for empty is read from end to end by its primary key.
    if (select true from delivery d
        where d.sink = has_due.sink and d.lane is null and d.due_at <= v_now
          and (d.lease_expires_at is null or d.lease_expires_at <= v_now)
          and (has_due.tenant_id is null or d.tenant_id = has_due.tenant_id)
        order by d.priority desc, d.due_at, d.message_id
        limit 1)
    then
        return true;
    end if;
    return exists (
        with recursive head as (
            (select d.lane, d.sequence_id, d.lane_tail, d.due_at, d.lease_expires_at, d.tenant_id from delivery d
             where d.sink = has_due.sink and d.lane is not null
             order by d.lane, d.sequence_id limit 1)
            union all
            select n.* from head h
            cross join lateral (
                select d.lane, d.sequence_id, d.lane_tail, d.due_at, d.lease_expires_at, d.tenant_id from delivery d
                where d.sink = has_due.sink and d.lane > h.lane and d.lane is not null
                order by d.lane, d.sequence_id limit 1
            ) n
        )
        select from head h
        where h.due_at <= v_now and (h.lease_expires_at is null or h.lease_expires_at <= v_now)
          and (has_due.tenant_id is null or h.tenant_id = has_due.tenant_id)
          -- Not as an anti join, which may read every lane for one.
          and (select true from delivery t
               where t.sink = has_due.sink and t.lane = h.lane and t.lane is not null
                 and t.sequence_id > h.sequence_id and t.sequence_id <= h.lane_tail and t.lease_expires_at > v_now
               order by t.sequence_id
               limit 1) is null);
end
$$;
comment on function :"schema".has_due is 'Whether something of this sink is due and held by nobody, locked or not.';
grant execute on function :"schema".has_due to :"relay";
