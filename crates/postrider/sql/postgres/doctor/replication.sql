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
