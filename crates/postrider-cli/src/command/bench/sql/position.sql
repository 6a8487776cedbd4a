-- How far the server's log and its count of transactions are: the difference of two is what was written between them.
select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint
