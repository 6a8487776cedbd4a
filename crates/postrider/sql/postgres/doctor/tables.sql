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
