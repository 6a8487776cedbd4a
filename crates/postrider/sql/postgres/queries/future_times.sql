-- Times that the database's clock cannot have written, had it always been right: leases, relays' reports and samples from
-- later than now. $1: seconds that are nobody's fault. $2: the longest lease there can be, in seconds.
select (select count(*) from outbox.delivery d
        where d.claimed_at > n.latest or d.lease_expires_at > n.latest + make_interval(secs => $2)) as leases,
       (select count(*) from outbox.relay r where r.reported_at > n.latest) as reports,
       (select count(*) from outbox.sample s where s.at > n.latest) as samples
from (select clock_timestamp() + make_interval(secs => $1) as latest) n
