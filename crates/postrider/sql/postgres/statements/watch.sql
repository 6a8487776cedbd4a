-- What relays report and measure, and how they sleep. Called by `store/postgres/queue.rs`, `listen.rs` and `inspect.rs`.

-- name: notify
-- A notification to itself, sent through the pool.
select pg_notify($1, '')

-- name: can_write
-- Whether the server takes writes.
select pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only') = 'on'

-- name: relays
-- Relays as they last reported.
select worker_id, version, started_at, reported_at, every_seconds, silent, sinks::text as sinks
from :"schema".relays
order by worker_id

-- name: samples
-- What was measured in the last $1 seconds.
select * from :"schema".samples
where at >= now() - $1::text::numeric * interval '1 second'
order by at, sink

-- name: future_times
-- Times that the database's clock cannot have written, had it always been right: leases, relays' reports and samples from
-- later than now. $1: seconds that are nobody's fault. $2: the longest lease there can be, in seconds.
select (select count(*) from :"schema".delivery d
        where d.claimed_at > n.latest or d.lease_expires_at > n.latest + make_interval(secs => $2)) as leases,
       (select count(*) from :"schema".relay r where r.reported_at > n.latest) as reports,
       (select count(*) from :"schema".sample s where s.at > n.latest) as samples
from (select clock_timestamp() + make_interval(secs => $1) as latest) n
