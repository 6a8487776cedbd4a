-- Writes down what an operator did. Internal: called by each function that changes something for an operator, in its own
-- body, so that SQL by hand is audited too. Granted to nobody.
-- An entry is written if somebody is named, or if something was changed: a relay repeats its routes at every start, and
-- that is not worth an entry each. Nobody named: the login itself. The login is kept in any case: `actor` is what the
-- caller says, `db_user` is what the server knows.
-- Returns `affected`, which is what its callers return. Locks: none. Errors: 22023 for an actor that is empty or too long, and the change is rolled back.
create or replace function :"schema".write_audit(actor text, action text, detail jsonb, affected bigint)
    returns bigint language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
as $$
begin
    perform refuse_unless(coalesce(octet_length(write_audit.actor) between 1 and 255, true),
                          'actor must be 1 to 255 bytes of text');
    if write_audit.actor is not null or write_audit.affected <> 0 then
        insert into audit (at, affected, actor, db_user, action, detail)
        values (clock_timestamp(), write_audit.affected, coalesce(write_audit.actor, session_user), session_user,
                write_audit.action, jsonb_strip_nulls(write_audit.detail));
    end if;
    return write_audit.affected;
end
$$;
comment on function :"schema".write_audit is 'Internal: writes down what an operator did, with the login that did it.';

-- A time as the audit writes it: RFC 3339 in UTC, whatever the session's time zone. Internal.
create or replace function :"schema".utc(at_time timestamptz)
    returns text language sql stable
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select case when isfinite(at_time) then to_char(at_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
                else at_time::text end
$$;
comment on function :"schema".utc is 'Internal: a time as text, in UTC.';
