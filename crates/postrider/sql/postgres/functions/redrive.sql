-- Puts dead letters back to pending: the attempt budget starts at 0 again, the attempt numbers go on.
-- Caller: an operator; audited. Transition: dead -> pending, due now. A parked lane head goes on in its place; a head that was
--   skipped comes back at its own number, which is now the lowest of its lane.
-- Locks: the dead letters, in id order, so two operators redrive each once; then the front of the lanes of each sink (see
--   hold_lane_fronts). READ COMMITTED only. Zero: nothing named is dead.
create or replace function :"schema".redrive(
    message_ids  uuid[]  default null,
    all_dead     boolean default false,
    sink         text    default null,
    actor        text    default null
)
    returns integer language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_ids    uuid[];
    v_sinks  text[];
begin
    perform refuse_unless((redrive.message_ids is null) = coalesce(redrive.all_dead, false),
                          'name message_ids or say all_dead => true, exactly one');
    if redrive.all_dead then
        select array_agg(l.message_id), array_agg(l.sink) into v_ids, v_sinks
        from dead_letter l where redrive.sink is null or l.sink = redrive.sink;
    else
        select array_agg(l.message_id), array_agg(l.sink) into v_ids, v_sinks
        from (select distinct i.id from unnest(redrive.message_ids) i (id)) i
        join dead_letter l on l.message_id = i.id
        where redrive.sink is null or l.sink = redrive.sink;
    end if;
    return write_audit(redrive.actor, 'redrive', jsonb_build_object(
        'message_ids', redrive.message_ids, 'all_dead', nullif(redrive.all_dead, false), 'sink', redrive.sink),
        change_letters('redrive', v_ids, v_sinks));
end
$$;
comment on function :"schema".redrive is 'Puts dead letters back to pending with a new attempt budget; returns how many.';

-- Redrives dead letters that are described instead of named, at most `at_most` of them, the oldest first: whoever
-- wants all calls again until it returns 0. What is not given does not matter; nothing given means every dead letter.
-- Locks: see change_dead; two operators at once get different ones. Zero: nothing matches that nobody else just takes.
create or replace function :"schema".redrive_matching(
    message_ids uuid[] default null, sink text default null, namespace text default null, topic text default null,
    tenant_id text default null, lane text default null, reason text default null, error_code text default null,
    died_from timestamptz default null, died_to timestamptz default null, at_most integer default 1000, actor text default null
)
    returns integer language sql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$ select change_dead('redrive', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) $$;
comment on function :"schema".redrive_matching is 'Redrives the oldest dead letters of a kind; returns how many.';
