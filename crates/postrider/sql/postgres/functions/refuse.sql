-- What refuses a call before it changes anything. Internal.

-- Wrong input: raises 22023 with these words unless the condition is true. Callers: operators' functions and whatever is not
-- called for every message; the others ask in their own bodies, where no call is made.
create or replace function :"schema".refuse_unless(condition boolean, words text)
    returns void language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
as $$
begin
    if condition is not true then
        raise exception '%', words using errcode = '22023';
    end if;
end
$$;
comment on function :"schema".refuse_unless is 'Internal: raises 22023 with these words unless the condition is true.';

-- "Lock, then look" needs a look that is newer than the lock. Called by whatever decides by what is committed now:
-- claim, abandon, redrive, replay, prune, measure.
create or replace function :"schema".refuse_stale_snapshot()
    returns void language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
as $$
begin
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        raise exception 'this needs a transaction in READ COMMITTED' using errcode = '25001';
    end if;
end
$$;
comment on function :"schema".refuse_stale_snapshot is 'Internal: raises 25001 unless the isolation is READ COMMITTED.';
