-- Puts dead letters back to pending: the attempt budget starts at 0 again, the attempt numbers go on.
-- Caller: an operator. Transition: dead -> pending, due now. A parked lane head goes on in its place; a head that was
--   skipped comes back at its own number, which is now the lowest of its lane.
-- Locks: the dead letters, in id order, so two operators redrive each once. Zero: nothing named is dead.
create or replace function :"schema".redrive(
    message_ids  uuid[]  default null,
    all_dead     boolean default false,
    sink         text    default null
)
    returns integer
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_now    constant timestamptz := clock_timestamp();
    v_count  integer;
begin
    if (redrive.message_ids is not null) = coalesce(redrive.all_dead, false) then
        raise exception 'name message_ids or say all_dead => true, exactly one' using errcode = '22023';
    end if;
    with chosen as materialized (
        select l.* from dead_letter l
        where (redrive.all_dead or l.message_id = any (redrive.message_ids))
          and (redrive.sink is null or l.sink = redrive.sink)
        order by l.message_id, l.sink
        for update
    ),
    resurrected as (
        delete from dead_letter l using chosen c where l.message_id = c.message_id and l.sink = c.sink
    ),
    unparked as (
        update delivery d set due_at = v_now, attempt_count = 0
        from chosen c
        where c.parked and d.message_id = c.message_id and d.sink = c.sink
    ),
    put_back as (
        insert into delivery (message_id, due_at, priority, sequence_id, tenant_id, sink, lane, attempt_no, lane_tail)
        select c.message_id, v_now, c.priority, c.sequence_id, c.tenant_id, c.sink, c.lane, c.attempt_no,
               last_leased(c.sink, c.lane)
        from chosen c
        where not c.parked
        order by c.message_id, c.sink
        on conflict do nothing
    )
    select count(*) into v_count from chosen;
    if v_count > 0 then
        perform notify_sleepers();
    end if;
    return v_count;
end
$$;
comment on function :"schema".redrive(uuid[], boolean, text) is
    'Puts dead letters back to pending with a new attempt budget; returns how many.';

-- The highest number of a lane that is leased now. What is put in front of it waits until that lease ends. Internal.
create or replace function :"schema".last_leased(sink text, lane text)
    returns bigint
    language sql stable
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select max(d.sequence_id) from delivery d
    where last_leased.lane is not null and d.sink = last_leased.sink and d.lane = last_leased.lane
      and d.lane is not null and d.lease_expires_at > clock_timestamp()
$$;
comment on function :"schema".last_leased(text, text) is 'Internal: the highest sequence number of a lane under a lease.';
