-- A span as it is now: new, or reaching further. Caller: prune_inbox.
insert into outbox_inbox_lane (source, lane, tenant, first_sequence, last_sequence, newest_event_id, remembered_at)
values (:source, :lane, :tenant, :first_sequence, :last_sequence, :newest_event_id, :now)
on conflict (source, lane, tenant, first_sequence) do update
    set last_sequence = excluded.last_sequence, newest_event_id = excluded.newest_event_id,
        remembered_at = excluded.remembered_at
