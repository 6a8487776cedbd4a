-- Gives up dead letters for good. The message and its attempts stay as history until retention takes them.
-- Caller: an operator. Transition: dead -> gone; a parked lane goes on with its next number.
-- Locks: the dead letters, in id order. Zero: nothing named is dead.
create or replace function :"schema".discard(message_ids uuid[], sink text default null)
    returns integer
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_count integer;
begin
    if discard.message_ids is null then
        raise exception 'message_ids must not be null' using errcode = '22023';
    end if;
    with chosen as materialized (
        select l.message_id, l.sink, l.parked
        from (select distinct i.id from unnest(discard.message_ids) i (id)) i
        join dead_letter l on l.message_id = i.id
        where discard.sink is null or l.sink = discard.sink
        order by l.message_id, l.sink
        for update of l
    ),
    given_up as (
        delete from dead_letter l using chosen c where l.message_id = c.message_id and l.sink = c.sink
    ),
    unparked as (
        delete from delivery d using chosen c
        where c.parked and d.message_id = c.message_id and d.sink = c.sink
    )
    select count(*) into v_count from chosen;
    if v_count > 0 then
        perform notify_sleepers();
    end if;
    return v_count;
end
$$;
comment on function :"schema".discard(uuid[], text) is 'Gives up dead letters for good; returns how many.';
