-- "Lock, then look" needs a look that is newer than the lock. Internal: called by whatever decides by what is committed now:
-- claim, abandon, redrive, replay, prune, measure.
create or replace function :"schema".refuse_stale_snapshot()
    returns void
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
as $$
begin
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        raise exception 'this needs a transaction in READ COMMITTED' using errcode = '25001';
    end if;
end
$$;
comment on function :"schema".refuse_stale_snapshot is 'Internal: raises 25001 unless the isolation is READ COMMITTED.';
