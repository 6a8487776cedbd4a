-- The names of an older outbox over this one, so that its callers run unchanged: the table `public.outbox`, which can be
-- inserted into, `app.outbox_claim` and `app.outbox_mark_delivered`. Apply it with psql, as the outbox's owner, after
-- `postrider migrate up`; it may be applied again. Logins that insert need the role outbox_producer, workers outbox_relay, and
-- both need rights on these names. New code calls outbox.enqueue, outbox.claim and outbox.mark_delivered.
--
-- What is different: a claim ends after 120 seconds, and the rows are handed out again (the older one held them for ever); the
-- count of mark_delivered is what this call changed; ids are made here; rows are deleted by `outbox.prune_at_retention()` and
-- not by a DELETE. The outbox's tenants are text and cast here: every one must be a UUID.
--
-- The view reads tables. `migrate up` makes the outbox's own views anew, and refuses to if a view of yours depends on one.

create schema if not exists app;

create or replace view public.outbox as
select m.id, m.topic, m.payload, m.tenant_id::uuid as tenant_id, m.occurred_at as created_at,
       (select a.completed_at from outbox.attempt a
        where a.message_id = m.id and a.sink = 'default' and a.state = 'DISPATCHED'
        order by a.attempt_no desc limit 1) as delivered_at,
       (select count(*)::integer from outbox.attempt a where a.message_id = m.id and a.sink = 'default') as attempts,
       d.lease_token as processing_token
from outbox.message m
-- A join, so that a question about a token begins at the few rows that are held, not at every message.
left join outbox.delivery d on d.message_id = m.id and d.sink = 'default' and d.lease_expires_at > now();
comment on view public.outbox is 'Messages and how they stand for the sink `default`. An INSERT enqueues.';

create or replace function app.outbox_insert() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if num_nonnulls(new.id, new.delivered_at, new.processing_token) > 0 or new.attempts <> 0 then
        raise exception 'only topic, payload, tenant_id and created_at can be inserted into public.outbox'
            using errcode = '0A000', hint = 'The outbox makes the id; claims and attempts write the rest.';
    end if;
    select e.message_id into new.id
    from outbox.enqueue(topic => new.topic, payload => new.payload, tenant_id => new.tenant_id::text,
                        occurred_at => new.created_at) e;
    new.created_at := coalesce(new.created_at, now());
    new.attempts := 0;
    return new;
end
$$;
comment on function app.outbox_insert is 'Trigger: an INSERT into public.outbox is an outbox.enqueue.';

create or replace trigger outbox_insert instead of insert on public.outbox
    for each row execute function app.outbox_insert();

-- The token is the caller's, a new one for each claim, and names the worker too.
create or replace function app.outbox_claim(p_limit integer, p_token uuid, p_tenant uuid default null)
    returns setof public.outbox
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    select c.message_id, c.topic, c.payload, c.tenant_id::uuid, c.occurred_at, null::timestamptz, c.attempt_no - 1, c.lease_token
    from outbox.claim(worker_id => p_token::text, batch_size => p_limit, lease_seconds => 120,
                      tenant_id => p_tenant::text, lease_token => p_token) with ordinality
         as c (message_id, sink, namespace, topic, tenant_id, lane, sequence_id, dedupe_key, priority, headers, payload, body,
               content_type, occurred_at, due_at, attempt_no, attempt_count, lost_leases, lease_token, claimed_at,
               lease_expires_at, nth)
    order by c.nth
$$;
comment on function app.outbox_claim is 'Leases up to p_limit messages under the caller''s token, the oldest first.';

create or replace function app.outbox_mark_delivered(p_token uuid, p_ids uuid[])
    returns integer
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    select outbox.mark_delivered(p_token, p_ids)
$$;
comment on function app.outbox_mark_delivered is 'Marks what is held under this token delivered; returns how many changed.';

revoke all on function app.outbox_claim, app.outbox_mark_delivered from public;
