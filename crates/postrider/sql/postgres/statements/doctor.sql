-- What `postrider doctor` looks at. Called by `src/doctor`; any role may ask, unless a statement says otherwise.

-- name: server
-- What the server is and how safe a commit is in it. Any role may ask.
select current_setting('server_version_num')::integer as version,
       current_setting('server_version') as version_text,
       current_setting('fsync') as fsync,
       current_setting('full_page_writes') as full_page_writes,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('autovacuum') as autovacuum,
       current_setting('track_counts') as track_counts,
       -- The database's own; what this session was given may be something else.
       coalesce((select substr(c.setting, length('default_transaction_isolation=') + 1)
                 from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase, unnest(s.setconfig) c (setting)
                 where d.datname = current_database() and s.setrole = 0
                   and starts_with(c.setting, 'default_transaction_isolation=') limit 1),
                current_setting('default_transaction_isolation')) as isolation,
       pg_is_in_recovery() as is_standby,
       current_user::text as role,
       clock_timestamp() as now

-- name: sessions
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

-- name: prepared
-- Prepared transactions of this database, the oldest first: they keep dead rows, and their locks, until somebody ends
-- them, whoever restarts. $1: older than so many seconds.
select p.gid, p.owner::text as owner,
       extract(epoch from clock_timestamp() - p.prepared)::double precision as age_seconds,
       count(*) over () as found
from pg_prepared_xacts p
where p.database = current_database() and p.prepared <= clock_timestamp() - make_interval(secs => $1)
order by p.prepared
limit 1

-- name: replication
-- Slots and standbys that keep dead rows or write-ahead log, those that keep most first. A standby with
-- hot_standby_feedback holds rows back through its slot, or through its connection if it has none.
select s.slot_name::text as name, 'slot' as kind, s.active,
       coalesce(age(s.xmin), 0)::bigint as xmin_age,
       coalesce(pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end,
                                s.restart_lsn), 0)::bigint as kept_bytes
from pg_replication_slots s
union all
select coalesce(nullif(r.application_name, ''), r.pid::text), 'standby', true, coalesce(age(r.backend_xmin), 0)::bigint, 0
from pg_stat_replication r
order by xmin_age desc, kept_bytes desc

-- name: locks
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

-- name: tables
-- The outbox's own tables: whether autovacuum may work on them, whether they survive a crash, and what lies about in
-- them. Some are unlogged on purpose: what `sleeper` and `relay` say is soon said again, and a crash ends the claims that
-- `abandoned_claim` is about.
select c.relname::text as name, c.relpersistence = 'u' as is_unlogged,
       exists (select from unnest(c.reloptions) o where o in ('autovacuum_enabled=false', 'autovacuum_enabled=off'))
           as autovacuum_is_off,
       coalesce(t.n_live_tup, 0)::bigint as live_rows, coalesce(t.n_dead_tup, 0)::bigint as dead_rows
from pg_class c
left join pg_stat_user_tables t on t.relid = c.oid
where c.relnamespace = to_regnamespace($1) and c.relkind in ('r', 'p')
  and c.relname not in ('sleeper', 'relay', 'abandoned_claim')
order by c.relname

-- name: settings
-- What the outbox is set to, and how many messages lie in the default partition (counted to $1 at most).
select extract(epoch from s.retention)::double precision as retention_seconds,
       extract(epoch from s.dedupe_window)::double precision as dedupe_window_seconds,
       extract(epoch from s.partition_width)::double precision as partition_width_seconds,
       s.partitions_ahead,
       (select count(*) from (select from :"schema".message_rest limit $1) r) as rest_rows
from :"schema".setting s

-- name: partitions
-- The partitions of `message` and the bounds of each as text: from and to are UUIDv7s, whose first 48 bits are a time.
select c.relname::text as name,
       substring(pg_get_expr(c.relpartbound, c.oid) from 'FROM [(]''([0-9a-f-]+)''[)]')::uuid as id_from,
       substring(pg_get_expr(c.relpartbound, c.oid) from 'TO [(]''([0-9a-f-]+)''[)]')::uuid as id_to
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
where i.inhparent = to_regclass($1) and pg_get_expr(c.relpartbound, c.oid) <> 'DEFAULT'
order by id_from

-- name: functions
-- Every function in the outbox's schema, with its body, to be compared with what this build would make.
select p.proname::text as name, p.prosrc as body
from pg_proc p
where p.pronamespace = to_regnamespace($1)
order by p.proname

-- name: grants
-- Which of these functions the current role may call, and which group roles it is in. $1: names; $2: group roles.
select array(select f.name from unnest($1::text[]) f (name)
             where to_regproc(f.name) is null
                or not has_function_privilege(to_regproc(f.name)::oid, 'execute')) as missing,
       array(select g.name from unnest($2::text[]) g (name)
             where exists (select from pg_roles r where r.rolname = g.name and pg_has_role(r.oid, 'usage'))) as groups
