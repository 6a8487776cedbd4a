-- Relays as they last reported. One that is late by more than three of its intervals is silent: it has stopped without a
-- word, or cannot reach the database. One that stopped in good order is not here.
create view :"schema".relays as
select r.worker_id, r.version, r.started_at, r.reported_at,
       extract(epoch from r.every)::double precision as every_seconds,
       r.reported_at + 3 * r.every < clock_timestamp() as silent,
       r.sinks
from :"schema".relay r;
comment on view :"schema".relays is 'Relays that reported lately: their sinks, and whether they are late with the next report.';
grant select on :"schema".relays to :"relay";
