-- Lets a parked lane go on without its dead head, which stays a dead letter: redrive it or discard it later.
-- Caller: an operator; audited. Transition: the head's place in the queue goes; dead stays dead, and no longer parks.
-- Locks: the dead letter, then its delivery, as redrive and discard do: one of them wins.
-- Index: delivery_lane. Zero: the lane's head is not dead, or there is no such lane.
create or replace function :"schema".skip(sink text, lane text, actor text default null)
    returns integer language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_count integer;
begin
    perform refuse_unless(octet_length(skip.sink) between 1 and 255 and octet_length(skip.lane) between 1 and 255,
                          'sink and lane must each be 1 to 255 bytes of text');
    with head as materialized (
        select d.ctid as place, d.message_id, d.due_at from delivery d
        where d.sink = skip.sink and d.lane = skip.lane and d.lane is not null
        order by d.sequence_id
        limit 1
    ),
    chosen as materialized (
        select l.place, h.place as head_place from head h
        cross join lateral (
            select l.ctid as place from dead_letter l
            where l.message_id = h.message_id and l.sink is not distinct from skip.sink and l.parked
            offset 0 for update
        ) l
        where h.due_at = 'infinity'
    ),
    passed_by as (
        update dead_letter l set parked = false from chosen c where l.ctid = c.place
    ),
    freed as (
        delete from delivery d using chosen c where d.ctid = c.head_place
    )
    select count(*) into v_count from chosen;
    if v_count > 0 then
        perform notify_sleepers();
    end if;
    return write_audit(skip.actor, 'skip', jsonb_build_object('sink', skip.sink, 'lane', skip.lane), v_count);
end
$$;
comment on function :"schema".skip is
    'A parked lane goes on without its dead head, which stays a dead letter; returns 1, or 0 if it is not parked.';
