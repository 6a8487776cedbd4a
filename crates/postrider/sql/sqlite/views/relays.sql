-- Relays as they last reported. One that is late by more than three of its intervals is silent: it has stopped without a
-- word, or cannot reach the file. One that stopped in good order is not here. Times are microseconds since 1970.
create view outbox_relays as
select r.worker_id, r.version, r.started_at, r.reported_at, r.every_us / 1000000.0 as every_seconds,
       r.reported_at + 3 * r.every_us < c.now as silent, r.sinks
from outbox_relay r cross join outbox_clock c;
