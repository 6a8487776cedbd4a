-- House-keeping by pg_cron, in the database of the outbox, for sites where no relay runs all the time. A relay that runs
-- does all of this itself; both together do no harm. Run once, as a member of outbox_operator who may use pg_cron.
--
-- The extension needs `shared_preload_libraries = 'pg_cron'` and `cron.database_name = '<this database>'`.
create extension if not exists pg_cron;

-- What dead workers held comes back. It reads the hot table once.
select cron.schedule('outbox repair', '* * * * *', 'select outbox.repair_expired_leases()');

-- Room for the next days, and nothing older than the retention: each drops or makes whole partitions.
select cron.schedule('outbox partitions', '5 0 * * *', 'select outbox.make_partitions()');
select cron.schedule('outbox prune', '35 3 * * *', 'select * from outbox.prune_at_retention()');
select cron.schedule('outbox inbox', '50 3 * * *', 'select outbox.prune_inbox_at_retention()');

-- The record of pg_cron itself grows without end.
select cron.schedule('outbox cron record', '20 4 * * *',
                     $$delete from cron.job_run_details where end_time < now() - interval '7 days'$$);

-- To let pg_cron start deliveries, too. Where the program is on the server's machine, PostgreSQL can start it, for a member of
-- pg_execute_server_program; a run that takes longer than a minute is not started twice:
--select cron.schedule('outbox drain', '* * * * *',
--    $$copy (select) to program '/usr/local/bin/postrider drain --config /etc/postrider/postrider.toml'$$);
-- Elsewhere, ask a relay, with the extension pg_net:
--select cron.schedule('outbox trigger', '* * * * *',
--    $$select net.http_post('http://relay.internal:7433/api/v1/sync/trigger', headers => '{"authorization": "Bearer …"}')$$);
-- or use a timer of the system: deploy/systemd/postrider-drain.timer.
