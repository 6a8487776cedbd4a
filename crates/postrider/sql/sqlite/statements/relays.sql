-- Relays as they last reported. Caller: relays and explain.
select r.worker_id, r.version, r.started_at, r.reported_at, r.every_seconds, r.silent, r.sinks
from outbox_relays r
order by r.worker_id
