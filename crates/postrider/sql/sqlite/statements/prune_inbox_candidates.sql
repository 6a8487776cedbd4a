-- Received events past their retention (`older_than_us`, or the setting), oldest first.
-- Caller: prune_inbox, batch by batch. Index: outbox_inbox_by_age. Zero rows: that was all.
select i.event_id, i.tenant, i.source, i.lane, i.sequence_id
from outbox_inbox i indexed by outbox_inbox_by_age
where i.received_at < :now - coalesce(:older_than_us, (select s.inbox_retention_seconds * 1000000 from outbox_setting s))
order by i.received_at
limit :batch_size
