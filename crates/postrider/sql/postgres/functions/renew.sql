-- Extends leases: each named delivery that still holds the token and has not ended gets lease_seconds from now.
-- Caller: a relay whose delivery is slow but inside its deadline. Set-based; returns what really changed, so what is
-- missing from the answer is lost. Renew the messages of one lane together: a lane goes on from its lowest number.
-- Locks: the rows, in id order: that of delivery_pk. A HOT update. No join: with one, a plan that was made on an empty table
--   reads the whole index.
create or replace function :"schema".renew(lease_token uuid, message_ids uuid[], lease_seconds numeric)
    returns setof :"schema".renewed language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
    set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz;
begin
    if renew.lease_seconds is null or not (renew.lease_seconds > 0 and renew.lease_seconds <= 86400) then
        raise exception 'lease_seconds must be more than 0 and at most 86400' using errcode = '22023';
    end if;
    -- Lock, then look at the clock: a lease that ended while its row was waited for has ended.
    perform lock_held(renew.lease_token, renew.message_ids, clock_timestamp());
    v_now := clock_timestamp();
    return query
    update delivery d
    set lease_expires_at = v_now + renew.lease_seconds * interval '1 second'
    where d.message_id = any (renew.message_ids) and d.lease_token = renew.lease_token and d.lease_expires_at > v_now
    returning d.message_id, d.lease_expires_at;
end
$$;
comment on function :"schema".renew is
    'Extends the lease of messages still held under this token; returns those it changed.';
grant execute on function :"schema".renew to :"relay";
