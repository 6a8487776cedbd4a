-- Relays that have been silent for so long that nobody misses them. Caller: report. Zero rows: none.
delete from outbox_relay
where reported_at < :now - (select s.relay_retention_seconds * 1000000 from outbox_setting s)
  and worker_id <> :worker_id
