-- Other transactions that hold locks on the outbox's tables, those that others wait for longest first, then the oldest.
-- Which session is whose, and who waits for whom, any role sees; how old another role's transaction is, only members of
-- pg_read_all_stats. Callers: doctor, and a migration that did not get a lock.
-- $1: the schema, quoted. $2: how long others have waited for it, or $3: how old it is, in seconds, at least. $4: how many.
with waiting as materialized (
    select w.pid, pg_blocking_pids(w.pid) as blockers,
           coalesce(max(extract(epoch from clock_timestamp() - w.waitstart)), 0)::double precision as seconds
    from pg_locks w
    where not w.granted and w.pid <> pg_backend_pid()
    group by w.pid
),
holding as materialized (
    select l.pid, array_agg(distinct c.relname::text) as tables
    from pg_locks l
    join pg_class c on c.oid = l.relation
    where l.locktype = 'relation' and l.granted and l.pid <> pg_backend_pid()
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and c.relnamespace = to_regnamespace($1) and c.relkind in ('r', 'p')
    group by l.pid
)
select h.pid, s.usename::text as login, s.application_name as application, h.tables,
       extract(epoch from clock_timestamp() - s.xact_start)::double precision as age_seconds,
       b.sessions as blocked, b.seconds as blocked_seconds
from holding h
join pg_stat_activity s on s.pid = h.pid
cross join lateral (
    select count(*) as sessions, coalesce(max(w.seconds), 0) as seconds from waiting w where h.pid = any (w.blockers)
) b
where b.seconds >= $2 or s.xact_start <= clock_timestamp() - make_interval(secs => $3)
order by b.seconds desc, s.xact_start nulls last, h.pid
limit $4
