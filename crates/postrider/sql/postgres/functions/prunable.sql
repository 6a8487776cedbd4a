-- What prune would take now: a dry run. It looks at what prune looks at, and takes no lock.
-- Caller: an operator. Reads the default partitions and the dedupe keys once.
create or replace function :"schema".prunable(older_than_seconds numeric default null)
    returns table (partitions bigint, rest bigint, dedupe bigint) language plpgsql stable security definer
    rows 1
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_setting  setting;
    v_ended    timestamptz;
    v_keep     uuid;
begin
    perform refuse_unless(coalesce(prunable.older_than_seconds between 0 and 3155760000, true),
                          'older_than_seconds must be between 0 and 3155760000');
    select * into v_setting from setting;
    v_ended := clock_timestamp() - coalesce(prunable.older_than_seconds * interval '1 second', v_setting.retention);
    v_keep := message_id_floor(v_ended);
    partitions := (select count(*) from partition_bounds() b
                   where b.id_to <= v_keep and not undelivered_in(b.id_from, b.id_to)
                     and not ended_after(b.suffix, v_ended));
    rest := (select count(*) from message_rest m
             where m.id < v_keep
               and not exists (select from delivery d where d.message_id = m.id)
               and not exists (select from dead_letter l where l.message_id = m.id)
               and not exists (select from attempt a where a.message_id = m.id and a.completed_at > v_ended))
          + (select count(*) from attempt_rest a
             where a.message_id < v_keep and not exists (
                 select from message m
                 where m.id = a.message_id
                   and (m.tableoid <> 'message_rest'::regclass
                        or exists (select from delivery d where d.message_id = m.id)
                        or exists (select from dead_letter l where l.message_id = m.id)
                        or exists (select from attempt e where e.message_id = m.id and e.completed_at > v_ended))));
    dedupe := (select count(*) from dedupe k
               where k.message_id < message_id_floor(clock_timestamp() - v_setting.dedupe_window)
                 and not exists (select from delivery d where d.message_id = k.message_id)
                 and not exists (select from dead_letter l where l.message_id = k.message_id));
    return next;
end
$$;
comment on function :"schema".prunable is 'What prune would remove now; changes nothing.';
grant execute on function :"schema".prunable to :"reader", :"operator";
