-- Sessions of this database whose transaction keeps dead rows from being removed, the oldest first. Another role's
-- session shows its times only to members of pg_read_all_stats; hidden counts those that do not.
-- $1: older than so many seconds.
select s.pid, s.usename::text as usename, s.application_name, s.state,
       extract(epoch from clock_timestamp() - s.xact_start)::double precision as age_seconds,
       count(*) over () as found
from pg_stat_activity s
where s.datname = current_database() and s.pid <> pg_backend_pid() and s.backend_type = 'client backend'
  and s.xact_start is not null and (s.backend_xid is not null or s.backend_xmin is not null)
  and s.xact_start <= clock_timestamp() - make_interval(secs => $1)
order by s.xact_start
limit 1
