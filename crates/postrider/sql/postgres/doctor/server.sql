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
