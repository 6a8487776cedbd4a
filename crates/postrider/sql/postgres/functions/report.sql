-- Relays that are alive. A relay calls `report` every few seconds and `sign_off` when it stops in good order; whoever
-- looks at `relays` sees which are late. Writes one row of an unlogged table; nothing depends on it.

-- Zero rows: it never reported, or was forgotten; nothing to do.
create or replace function :"schema".sign_off(worker_id text)
    returns void language sql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$ delete from relay r where r.worker_id = sign_off.worker_id $$;
comment on function :"schema".sign_off is 'A relay stops in good order: nobody need miss it.';
grant execute on function :"schema".sign_off to :"relay";

-- every_seconds is when the next report is to be expected. sinks: an array of objects, one for each sink the relay
-- serves, as `relays` shows them. A relay that has been silent for setting.relay_retention is forgotten here.
create or replace function :"schema".report(worker_id text, version text, every_seconds numeric, sinks jsonb)
    returns void language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_now  constant timestamptz := clock_timestamp();
begin
    perform refuse_unless(octet_length(report.worker_id) between 1 and 255, 'worker_id must be 1 to 255 bytes of text');
    perform refuse_unless(octet_length(report.version) <= 255, 'version must be at most 255 bytes of text');
    perform refuse_unless(report.every_seconds > 0 and report.every_seconds <= 86400,
                          'every_seconds must be more than 0 and at most 86400');
    perform refuse_unless(jsonb_typeof(report.sinks) = 'array' and octet_length(report.sinks::text) <= 1048576,
                          'sinks must be a JSON array of at most 1 MiB');
    delete from relay r
    where r.reported_at < v_now - (select s.relay_retention from setting s) and r.worker_id <> report.worker_id;
    insert into relay (worker_id, started_at, reported_at, every, version, sinks)
    values (report.worker_id, v_now, v_now, report.every_seconds * interval '1 second', report.version, report.sinks)
    on conflict (worker_id) do update
    set reported_at = excluded.reported_at, every = excluded.every, version = excluded.version, sinks = excluded.sinks;
end
$$;
comment on function :"schema".report is 'A relay says that it is alive, what it serves, and when it will say so again.';
grant execute on function :"schema".report to :"relay";
