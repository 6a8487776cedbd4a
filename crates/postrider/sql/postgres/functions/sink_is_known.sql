-- Whether a sink of this name exists: `default`, or it has a setting, a route, a delivery, a dead letter or an attempt, or a
-- relay has reported it. Attempts have no index by sink, so they are looked through last, and only those of the messages
-- that are meant: these ids, or those of a range.
-- Caller: replay, and the dry run of one. Reads only.
create or replace function :"schema".sink_is_known(
    sink text, id_from uuid default null, id_before uuid default null, message_ids uuid[] default null
)
    returns boolean language plpgsql stable security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
begin
    if sink_is_known.sink = 'default'
       or exists (select from sink s where s.name = sink_is_known.sink)
       or exists (select from route r where r.sink = sink_is_known.sink)
       or exists (select from relay r, jsonb_array_elements(r.sinks) s (report)
                  where s.report ->> 'sink' = sink_is_known.sink)
       or exists (select from dead_letter l where l.sink = sink_is_known.sink)
       or exists (select from delivery d where d.sink = sink_is_known.sink and d.lane is null)
       or exists (select from delivery d where d.sink = sink_is_known.sink and d.lane is not null)
    then
        return true;
    end if;
    return exists (
        select from attempt a
        where a.sink = sink_is_known.sink
          and (sink_is_known.message_ids is null or a.message_id = any (sink_is_known.message_ids))
          and (sink_is_known.id_from is null or a.message_id >= sink_is_known.id_from)
          and (sink_is_known.id_before is null or a.message_id < sink_is_known.id_before));
end
$$;
comment on function :"schema".sink_is_known is 'Whether a sink of this name has anything to do with the outbox.';
grant execute on function :"schema".sink_is_known to :"reader", :"operator", :"auditor";
