-- Prepared transactions of this database, the oldest first: they keep dead rows, and their locks, until somebody ends
-- them, whoever restarts. $1: older than so many seconds.
select p.gid, p.owner::text as owner,
       extract(epoch from clock_timestamp() - p.prepared)::double precision as age_seconds,
       count(*) over () as found
from pg_prepared_xacts p
where p.database = current_database() and p.prepared <= clock_timestamp() - make_interval(secs => $1)
order by p.prepared
limit 1
