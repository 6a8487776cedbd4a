-- Quiet NOTIFY. A commit that notifies takes a lock over the whole server, so producers notify only when some relay
-- has said that it sleeps, and once a statement. A relay that finds nothing calls `sleep`, claims once more (a
-- producer may have looked just before), and then waits for the notification or its own poll, whichever comes first.

create or replace function :"schema".sleep(worker_id text, seconds numeric)
    returns void language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
begin
    perform refuse_unless(octet_length(sleep.worker_id) between 1 and 255, 'worker_id must be 1 to 255 bytes of text');
    perform refuse_unless(sleep.seconds > 0 and sleep.seconds <= 86400,
                          'seconds must be more than 0 and at most 86400');
    -- What crashed relays left behind, long after anybody could mean it.
    delete from sleeper s where s.until < clock_timestamp() - (sleep.seconds + 60) * interval '1 second'
                            and s.worker_id <> sleep.worker_id;
    insert into sleeper (worker_id, until)
    values (sleep.worker_id, clock_timestamp() + sleep.seconds * interval '1 second')
    on conflict (worker_id) do update set until = excluded.until;
end
$$;
comment on function :"schema".sleep is 'A relay says that it sleeps: producers notify until it wakes.';
grant execute on function :"schema".sleep to :"relay";

create or replace function :"schema".woke(worker_id text)
    returns void language sql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$ delete from sleeper s where s.worker_id = woke.worker_id $$;
comment on function :"schema".woke is 'A relay says that it is awake: producers need not notify it.';
grant execute on function :"schema".woke to :"relay";

-- Internal: called by whatever makes something due: enqueue, release, repair, retry_now, redrive, discard, skip,
-- replay, resume. The channel is `<schema>.due`. A transaction that has notified cannot be prepared (0A000), so a producer
-- with two-phase commit says `set local postrider.notify = off`: the sleepers' polls find its messages.
create or replace function :"schema".notify_sleepers()
    returns void language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
as $$
begin
    if coalesce(lower(current_setting('postrider.notify', true)), '') not in ('off', 'false', 'no', '0')
       and exists (select from sleeper s where s.until > clock_timestamp())
    then
        perform pg_notify(schema_name() || '.due', '');
    end if;
end
$$;
comment on function :"schema".notify_sleepers is
    'Notifies the channel <schema>.due if some relay sleeps, unless postrider.notify is off.';
