-- Writes down what an operator did. Call it in the transaction that did it: both commit or neither does.
-- Caller: whoever acts for an operator; the library and the command line do, for each of theirs.
-- Locks: none. Returns the entry's number.
create or replace function :"schema".write_audit(actor text, action text, detail jsonb, affected bigint)
    returns bigint
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_id bigint;
begin
    if not coalesce(octet_length(write_audit.actor) between 1 and 255, false) then
        raise exception 'actor must be 1 to 255 bytes of text' using errcode = '22023';
    elsif not coalesce(octet_length(write_audit.action) between 1 and 255, false) then
        raise exception 'action must be 1 to 255 bytes of text' using errcode = '22023';
    elsif not coalesce(jsonb_typeof(write_audit.detail) = 'object', false) then
        raise exception 'detail must be a JSON object' using errcode = '22023';
    elsif not coalesce(write_audit.affected >= 0, false) then
        raise exception 'affected must not be negative' using errcode = '22023';
    end if;
    insert into audit as a (at, affected, actor, action, detail)
    values (clock_timestamp(), write_audit.affected, write_audit.actor, write_audit.action, write_audit.detail)
    returning a.id into v_id;
    return v_id;
end
$$;
comment on function :"schema".write_audit(text, text, jsonb, bigint) is
    'Writes down what an operator did, in the same transaction; returns the number of the entry.';
