-- Gives up dead letters for good. The message and its attempts stay as history until retention takes them.
-- Caller: an operator; audited. Transition: dead -> discarded; a parked lane goes on with its next number.
-- Locks: the dead letters, in id order. Zero: nothing named is dead.
create or replace function :"schema".discard(message_ids uuid[], sink text default null, actor text default null)
    returns integer
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_ids    uuid[];
    v_sinks  text[];
    v_count  integer;
begin
    if discard.message_ids is null then
        raise exception 'message_ids must not be null' using errcode = '22023';
    end if;
    select array_agg(l.message_id), array_agg(l.sink) into v_ids, v_sinks
    from (select distinct i.id from unnest(discard.message_ids) i (id)) i
    join dead_letter l on l.message_id = i.id
    where discard.sink is null or l.sink = discard.sink;
    v_count := discard_letters(v_ids, v_sinks);
    perform write_audit(discard.actor, 'discard',
                        jsonb_build_object('message_ids', discard.message_ids, 'sink', discard.sink), v_count);
    return v_count;
end
$$;
comment on function :"schema".discard is 'Gives up dead letters for good; returns how many.';

-- The same for dead letters that are described instead of named, as in redrive_matching.
create or replace function :"schema".discard_matching(
    message_ids uuid[] default null, sink text default null, namespace text default null, topic text default null,
    tenant_id uuid default null, lane text default null, reason text default null, error_code text default null,
    died_from timestamptz default null, died_to timestamptz default null, at_most integer default 1000,
    actor text default null
)
    returns integer
    language sql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select change_dead('discard', message_ids, sink, namespace, topic, tenant_id, lane, reason, error_code, died_from, died_to,
                       at_most, actor)
$$;
comment on function :"schema".discard_matching is 'Gives up the oldest dead letters of a kind for good; returns how many.';

-- What both do, for pairs of message and sink. Internal.
create or replace function :"schema".discard_letters(message_ids uuid[], sinks text[])
    returns integer
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_count integer;
begin
    -- Each letter by a look of its own, and what goes by place (see redrive_letters).
    perform from (
        select i.id, i.sink from unnest(discard_letters.message_ids, discard_letters.sinks) i (id, sink)
        order by i.id, i.sink
    ) i
    cross join lateral (
        select from dead_letter l where l.message_id = i.id and l.sink = i.sink offset 0 for update
    ) l;
    with chosen as materialized (
        select l.place, p.place as parked_place
        from unnest(discard_letters.message_ids, discard_letters.sinks) i (id, sink)
        cross join lateral (
            select l.ctid as place, l.message_id, l.sink, l.parked from dead_letter l
            where l.message_id = i.id and l.sink = i.sink
            offset 0
        ) l
        left join lateral (
            select d.ctid as place from delivery d
            where l.parked and d.message_id = l.message_id and d.sink = l.sink
            offset 0
        ) p on true
    ),
    given_up as (
        delete from dead_letter l using chosen c where l.ctid = c.place
    ),
    unparked as (
        delete from delivery d using chosen c where d.ctid = c.parked_place
    )
    select count(*) into v_count from chosen;
    if v_count > 0 then
        perform notify_sleepers();
    end if;
    return v_count;
end
$$;
comment on function :"schema".discard_letters is 'Internal: what discard and discard_matching do.';
