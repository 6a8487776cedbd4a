-- A claim that nobody waits for must leave nothing: leases that nobody knows of would hold their messages, and cost each an
-- attempt, until they end.

-- Takes back whatever a claim with this token has leased, as if it had not been claimed, and lets nothing be leased under it
-- any more, however late the claim arrives.
-- Caller: a worker whose claim was not answered. Transition: leased -> pending, due as before; the attempt number is given
--   back and nothing is recorded.
-- Locks: the token, so a claim that is under way is waited for; then the rows. Index: none, as in repair_expired_leases: it
--   reads the hot table once. Returns how many were taken back.
create or replace function :"schema".abandon(lease_token uuid)
    returns integer
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_ids uuid[];
begin
    if abandon.lease_token is null then
        raise exception 'lease_token must not be null' using errcode = '22023';
    end if;
    perform refuse_stale_snapshot();
    perform pg_advisory_xact_lock(claim_key(abandon.lease_token));
    -- No claim is on its way for longer than a lease may last.
    delete from abandoned_claim c where c.abandoned_at < clock_timestamp() - (select s.abandoned_for from setting s);
    insert into abandoned_claim (lease_token, abandoned_at) values (abandon.lease_token, clock_timestamp())
    on conflict do nothing;
    v_ids := array(select d.message_id from delivery d where d.lease_token = abandon.lease_token);
    return (select count(*)::integer from release(abandon.lease_token, v_ids));
end
$$;
comment on function :"schema".abandon(uuid) is
    'Takes back what a claim with this token leased, now or later; returns how many it found.';

-- Internal: called by claim, with a token that the caller made.
create or replace function :"schema".refuse_abandoned_claim(lease_token uuid)
    returns void
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off
as $$
begin
    perform pg_advisory_xact_lock_shared(claim_key(refuse_abandoned_claim.lease_token));
    if exists (select from abandoned_claim c where c.lease_token = refuse_abandoned_claim.lease_token) then
        raise exception 'LEASE_LOST'
            using errcode = 'P7002', detail = format('the claim with token %s was abandoned', lease_token),
                  hint = 'Claim again, with another token.';
    end if;
end
$$;
comment on function :"schema".refuse_abandoned_claim(uuid) is 'Internal: raises P7002 if the claim was abandoned.';

-- Internal: the advisory lock of a claim.
create or replace function :"schema".claim_key(lease_token uuid)
    returns bigint
    language sql immutable
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select hashtextextended('postrider/claim/' || lease_token, 0)
$$;
comment on function :"schema".claim_key(uuid) is 'Internal: the advisory lock of a claim.';
