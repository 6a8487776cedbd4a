-- Gives up dead letters that are described instead of named, as in redrive_matching; see discard.
create or replace function :"schema".discard_matching(
    message_ids uuid[] default null, sink text default null, namespace text default null, topic text default null,
    tenant_id text default null, lane text default null, reason text default null, error_code text default null,
    died_from timestamptz default null, died_to timestamptz default null, at_most integer default 1000, actor text default null
)
    returns integer language sql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$ select change_dead('discard', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) $$;
comment on function :"schema".discard_matching is 'Discards the oldest dead letters of a kind; returns how many.';

-- Gives up dead letters for good. The message and its attempts stay as history until retention takes them.
-- Caller: an operator; audited. Transition: dead -> discarded; a parked lane goes on with its next number.
-- Locks: the dead letters, in id order. Zero: nothing named is dead.
create or replace function :"schema".discard(message_ids uuid[], sink text default null, actor text default null)
    returns integer language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_ids    uuid[];
    v_sinks  text[];
begin
    perform refuse_unless(discard.message_ids is not null, 'message_ids must not be null');
    select array_agg(l.message_id), array_agg(l.sink) into v_ids, v_sinks
    from (select distinct i.id from unnest(discard.message_ids) i (id)) i
    join dead_letter l on l.message_id = i.id
    where discard.sink is null or l.sink = discard.sink;
    return write_audit(discard.actor, 'discard', jsonb_build_object(
        'message_ids', discard.message_ids, 'sink', discard.sink), change_letters('discard', v_ids, v_sinks));
end
$$;
comment on function :"schema".discard is 'Gives up dead letters for good; returns how many.';
