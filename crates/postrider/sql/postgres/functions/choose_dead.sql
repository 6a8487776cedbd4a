-- Chooses and locks dead letters by what is known about them, the oldest first. Internal.
-- Caller: redrive_matching and discard_matching. What is null does not matter; all null means every dead letter. An empty
--   error_code means those without one.
-- Locks: the dead letters, FOR UPDATE SKIP LOCKED: it waits for nobody, so it cannot deadlock with whoever locks by id,
--   and two operators with the same wish get different letters.
-- Index: dead_letter_by_time or dead_letter_of_sink, backwards; dead_letter_pk for message_ids. A custom plan, so that
--   what is null is no part of it. Nulls come back if nothing was found.
create or replace function :"schema".choose_dead(
    message_ids   uuid[],
    sink          text,
    namespace     text,
    topic         text,
    tenant_id     uuid,
    lane          text,
    reason        text,
    error_code    text,
    died_from     timestamptz,
    died_to       timestamptz,
    at_most       integer,
    out letter_ids    uuid[],
    out letter_sinks  text[]
)
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_custom_plan
    set jit = off
as $$
#variable_conflict use_column
begin
    if not coalesce(choose_dead.at_most between 1 and 10000, false) then
        raise exception 'at_most must be between 1 and 10000' using errcode = '22023';
    end if;
    select array_agg(c.message_id), array_agg(c.sink) into letter_ids, letter_sinks
    from (
        select l.message_id, l.sink from dead_letter l
        where num_nulls(l.died_at) <> 1
          and (choose_dead.message_ids is null or l.message_id = any (choose_dead.message_ids))
          and (choose_dead.sink is null or l.sink = choose_dead.sink)
          and (choose_dead.namespace is null or l.namespace = choose_dead.namespace)
          and (choose_dead.topic is null or l.topic like topic_like(choose_dead.topic))
          and (choose_dead.tenant_id is null or l.tenant_id = choose_dead.tenant_id)
          and (choose_dead.lane is null or l.lane = choose_dead.lane)
          and (choose_dead.reason is null or l.reason = choose_dead.reason)
          and (choose_dead.error_code is null or coalesce(l.error_code, '') = choose_dead.error_code)
          and (choose_dead.died_from is null or l.died_at >= choose_dead.died_from)
          and (choose_dead.died_to is null or l.died_at < choose_dead.died_to)
        order by l.died_at, l.message_id
        limit choose_dead.at_most
        for update skip locked
    ) c;
end
$$;
comment on function :"schema".choose_dead(
    uuid[], text, text, text, uuid, text, text, text, timestamptz, timestamptz, integer) is
    'Internal: locks the oldest dead letters of a kind.';
