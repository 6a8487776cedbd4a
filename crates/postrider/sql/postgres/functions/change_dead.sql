-- Redrives or discards dead letters that are described instead of named, the oldest first. Internal: what redrive_matching and
-- discard_matching do; `action` is `redrive` or `discard`. What is null does not matter; all null means every dead letter. An
-- empty error_code means those without one.
-- Locks: the dead letters, FOR UPDATE SKIP LOCKED: it waits for nobody, so it cannot deadlock with whoever locks by id,
--   and two operators with the same wish get different letters.
-- Index: dead_letter_by_time or dead_letter_of_sink, backwards; dead_letter_pk for message_ids. A custom plan, so that
--   what is null is no part of it.
create or replace function :"schema".change_dead(
    action text, message_ids uuid[], sink text, namespace text, topic text, tenant_id uuid, lane text, reason text,
    error_code text, died_from timestamptz, died_to timestamptz, at_most integer, actor text
)
    returns integer
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_custom_plan
    set jit = off
as $$
#variable_conflict use_column
declare
    v_ids    uuid[];
    v_sinks  text[];
    v_count  integer;
begin
    if not coalesce(change_dead.at_most between 1 and 10000, false) then
        raise exception 'at_most must be between 1 and 10000' using errcode = '22023';
    end if;
    select array_agg(c.message_id), array_agg(c.sink) into v_ids, v_sinks
    from (
        select l.message_id, l.sink from dead_letter l
        where num_nulls(l.died_at) <> 1
          and (change_dead.message_ids is null or l.message_id = any (change_dead.message_ids))
          and (change_dead.sink is null or l.sink = change_dead.sink)
          and (change_dead.namespace is null or l.namespace = change_dead.namespace)
          and (change_dead.topic is null or l.topic like topic_like(change_dead.topic))
          and (change_dead.tenant_id is null or l.tenant_id = change_dead.tenant_id)
          and (change_dead.lane is null or l.lane = change_dead.lane)
          and (change_dead.reason is null or l.reason = change_dead.reason)
          and (change_dead.error_code is null or coalesce(l.error_code, '') = change_dead.error_code)
          and (change_dead.died_from is null or l.died_at >= change_dead.died_from)
          and (change_dead.died_to is null or l.died_at < change_dead.died_to)
        order by l.died_at, l.message_id
        limit change_dead.at_most
        for update skip locked
    ) c;
    if change_dead.action = 'redrive' then
        v_count := redrive_letters(v_ids, v_sinks);
    else
        v_count := discard_letters(v_ids, v_sinks);
    end if;
    perform write_audit(change_dead.actor, change_dead.action, jsonb_build_object(
        'message_ids', change_dead.message_ids, 'sink', change_dead.sink, 'namespace', change_dead.namespace,
        'topic', change_dead.topic, 'tenant_id', change_dead.tenant_id, 'lane', change_dead.lane,
        'reason', change_dead.reason, 'error_code', change_dead.error_code, 'died_from', utc(change_dead.died_from),
        'died_to', utc(change_dead.died_to), 'at_most', change_dead.at_most), v_count);
    return v_count;
end
$$;
comment on function :"schema".change_dead is 'Internal: redrives or discards the oldest dead letters of a kind.';
