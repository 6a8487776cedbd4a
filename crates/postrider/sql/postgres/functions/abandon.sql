-- A claim that nobody waits for must leave nothing: leases that nobody knows of would hold their messages, and cost each an
-- attempt, until they end.

-- Takes back whatever a claim with this token has leased, as if it had not been claimed, and lets nothing be leased under it
-- any more, however late the claim arrives.
-- Caller: a worker whose claim was not answered. Transition: leased -> pending, due as before; the attempt number is given
--   back and nothing is recorded.
-- Locks: the token's row (see claim), so a claim under way that has something to lease is waited for; then
--   the deliveries. Index: none, as in repair_expired_leases: it
--   reads the hot table once. Returns how many were taken back.
create or replace function :"schema".abandon(lease_token uuid)
    returns integer language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_ids uuid[];
begin
    perform refuse_unless(abandon.lease_token is not null, 'lease_token must not be null');
    perform refuse_stale_snapshot();
    insert into abandoned_claim (lease_token, abandoned_at) values (abandon.lease_token, clock_timestamp())
    on conflict do nothing;
    -- No claim is on its way for longer than a lease may last.
    delete from abandoned_claim c
    where c.ctid = any (array(
        select o.ctid from abandoned_claim o
        where o.abandoned_at < clock_timestamp() - (select s.abandoned_for from setting s)
        for update skip locked));
    v_ids := array(select d.message_id from delivery d where d.lease_token = abandon.lease_token);
    return (select count(*)::integer from release(abandon.lease_token, v_ids));
end
$$;
comment on function :"schema".abandon is
    'Takes back what a claim with this token leased, now or later; returns how many it found.';
grant execute on function :"schema".abandon to :"relay";
