-- Hands back what was claimed and not sent: the attempt number is given back and nothing is recorded.
-- Caller: a relay that shuts down, or whose lane head failed. Set-based; returns what really changed.
-- Transition: leased -> pending, due as before. Fenced like complete_many. Locks: the rows, in id order. A HOT update.
-- No join: see renew.
create or replace function :"schema".release(lease_token uuid, message_ids uuid[])
    returns setof uuid language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
    set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_now constant timestamptz := clock_timestamp();
begin
    return query
    with released as (
        update delivery d
        set attempt_no = d.attempt_no - 1, attempt_count = d.attempt_count - 1,
            claimed_at = null, lease_expires_at = null, lease_token = null, claimed_by = null
        where d.message_id = any (release.message_ids) and d.lease_token = release.lease_token
          and d.lease_expires_at > v_now
        returning d.message_id, d.due_at
    ),
    told as materialized (select notify_sleepers() where exists (select from released))
    select r.message_id from released r left join told t on true;
end
$$;
comment on function :"schema".release is 'Hands back unsent messages held under this token; returns those it changed.';
grant execute on function :"schema".release to :"relay";
