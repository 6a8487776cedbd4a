-- The names of an older outbox library over this one: the table `modkit_outbox_events`, which can be inserted into, and
-- `modkit_outbox.enqueue`, `claim_batch`, `ack` and `nack`, one for each call of that library. Apply it with psql, as the
-- outbox's owner, after `postrider migrate up`; it may be applied again. Logins need rights on these names alone. New code
-- calls outbox.enqueue, outbox.claim and outbox.complete.
--
-- A namespace is a sink of the same name. The first message of a namespace adds its route.
--
-- What is different: ids are made here; a known dedupe key inserts nothing, and is remembered after delivery, too;
-- `on conflict do nothing` may be said, but without a target, for a view has no unique index; a row is changed by the
-- functions and not by an UPDATE; payloads are json, and a worker's id that is no uuid shows as null.
--
-- The view reads tables. `migrate up` makes the outbox's own views anew, and refuses to if a view of yours depends on one.

create schema if not exists modkit_outbox;

-- Tenants and workers are text here and uuids there. What is no uuid belongs to nobody who uses these names.
create or replace function modkit_outbox.as_uuid(p_text text)
    returns uuid
    language sql immutable
    set search_path = pg_catalog, pg_temp
as $$
    select case when p_text ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then p_text::uuid end
$$;
comment on function modkit_outbox.as_uuid is 'The text as a uuid, or null.';

create or replace view public.modkit_outbox_events as
select m.id, m.namespace, m.topic, modkit_outbox.as_uuid(m.tenant_id) as tenant_id, m.dedupe_key, m.payload,
       case when d.lease_token is not null then 'processing'
            when d.due_at < 'infinity' then 'pending'
            when l.message_id is null and a.state = 'DISPATCHED' then 'delivered'
            else 'dead' end as status,
       coalesce(d.attempt_count, l.attempt_count, a.attempt_no) as attempts,
       coalesce(nullif(d.due_at, 'infinity'), a.completed_at) as next_attempt_at,
       modkit_outbox.as_uuid(d.claimed_by) as locked_by, d.lease_expires_at as locked_until,
       coalesce(l.error_message, a.error_message) as last_error,
       m.occurred_at as created_at, coalesce(d.claimed_at, a.completed_at, m.occurred_at) as updated_at
from outbox.message m
left join outbox.delivery d on d.message_id = m.id and d.sink = m.namespace
left join outbox.dead_letter l on l.message_id = m.id and l.sink = m.namespace
left join lateral (
    select t.message_id, t.attempt_no, t.state, t.completed_at, t.error_message from outbox.attempt t
    where t.message_id = m.id and t.sink = m.namespace
    order by t.attempt_no desc
    limit 1
) a on true
where coalesce(d.message_id, l.message_id, a.message_id) is not null;
comment on view public.modkit_outbox_events is 'Messages and how they stand for the sink of their namespace. An INSERT enqueues.';

create or replace function modkit_outbox.write(
    p_namespace text, p_topic text, p_tenant_id uuid, p_dedupe_key text, p_payload jsonb, p_created_at timestamptz,
    p_next_attempt_at timestamptz, out id uuid, out created boolean
)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from outbox.route r where r.namespace = p_namespace and r.sink = p_namespace) then
        perform outbox.add_route(p_namespace, namespace => p_namespace);
    end if;
    select e.message_id, e.created into id, created
    from outbox.enqueue(topic => p_topic, payload => p_payload, namespace => p_namespace, tenant_id => p_tenant_id::text,
                        dedupe_key => p_dedupe_key, occurred_at => p_created_at, due_at => p_next_attempt_at) e;
end
$$;
comment on function modkit_outbox.write is 'Internal: what enqueue and an INSERT have in common.';

create or replace function modkit_outbox.enqueue(
    p_namespace text, p_topic text, p_tenant_id uuid, p_dedupe_key text, p_payload jsonb
)
    returns uuid
    language sql security definer
    set search_path = pg_catalog, pg_temp
as $$
    select w.id from modkit_outbox.write(p_namespace, p_topic, p_tenant_id, p_dedupe_key, p_payload, null, null) w
$$;
comment on function modkit_outbox.enqueue is
    'Writes one message in this transaction and returns its id, or that of the message that has this dedupe key.';

create or replace function modkit_outbox.insert_event() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    v_written record;
begin
    if num_nonnulls(new.id, new.locked_by, new.locked_until, new.last_error) > 0 or new.attempts <> 0
       or new.status <> 'pending'
    then
        raise exception 'an event is inserted as pending, without an id, attempts, a lock or an error'
            using errcode = '0A000', hint = 'The outbox makes the id; claims and attempts write the rest.';
    end if;
    v_written := modkit_outbox.write(new.namespace, new.topic, new.tenant_id, new.dedupe_key, new.payload, new.created_at,
                                     new.next_attempt_at);
    if not v_written.created then
        return null;
    end if;
    new.id := v_written.id;
    new.status := 'pending';
    new.attempts := 0;
    new.created_at := coalesce(new.created_at, now());
    new.next_attempt_at := coalesce(new.next_attempt_at, new.created_at);
    new.updated_at := new.created_at;
    return new;
end
$$;
comment on function modkit_outbox.insert_event is
    'Trigger: an INSERT into modkit_outbox_events is an enqueue; nothing is inserted if the dedupe key is known.';

create or replace trigger insert_event instead of insert on public.modkit_outbox_events
    for each row execute function modkit_outbox.insert_event();

create or replace function modkit_outbox.claim_batch(
    p_worker_id uuid, p_namespace text, p_batch_size integer, p_lease_duration interval, p_max_attempts integer
)
    returns table (id uuid, namespace text, topic text, tenant_id uuid, dedupe_key text, payload jsonb, attempts integer)
    language sql security definer
    set search_path = pg_catalog, pg_temp
as $$
    select c.message_id, c.namespace, c.topic, modkit_outbox.as_uuid(c.tenant_id), c.dedupe_key, c.payload, c.attempt_count
    from outbox.claim(worker_id => p_worker_id::text, batch_size => p_batch_size,
                      lease_seconds => extract(epoch from p_lease_duration), sink => p_namespace,
                      max_attempts => p_max_attempts) c
    order by c.occurred_at, c.message_id
$$;
comment on function modkit_outbox.claim_batch is
    'Leases up to p_batch_size events to a worker, the oldest first; what is out of attempts becomes dead.';

-- The older worker knows its own id and no token, so its lease is looked up by that.
create or replace function modkit_outbox.finish(
    p_worker_id uuid, p_id uuid, p_state text, p_retry_after interval, p_err text
)
    returns void
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    v_token  uuid;
begin
    select d.lease_token into v_token from outbox.delivery d
    where d.message_id = p_id and d.claimed_by = p_worker_id::text;
    perform outbox.complete(p_id, v_token, p_worker_id::text, p_state,
                            retry_after_seconds => extract(epoch from p_retry_after), error_message => p_err);
end
$$;
comment on function modkit_outbox.finish is 'Internal: what ack and nack have in common.';

create or replace function modkit_outbox.ack(p_worker_id uuid, p_id uuid)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
as $$
    select modkit_outbox.finish(p_worker_id, p_id, 'DISPATCHED', null, null)
$$;
comment on function modkit_outbox.ack is 'processing -> delivered; P7002 LEASE_LOST for anybody but the holder.';

create or replace function modkit_outbox.nack(
    p_worker_id uuid, p_id uuid, p_err text, p_base_delay interval default '1 second', p_max_delay interval default '5 minutes'
)
    returns void
    language sql security definer
    set search_path = pg_catalog, pg_temp
as $$
    select modkit_outbox.finish(
        p_worker_id, p_id, 'RETRYABLE',
        least(p_base_delay * power(2, least(coalesce(d.attempt_count, 1) - 1, 30)), p_max_delay) * (0.5 + random() / 2), p_err)
    from (values (p_id)) i (id) left join outbox.delivery d on d.message_id = i.id and d.claimed_by = p_worker_id::text
$$;
comment on function modkit_outbox.nack is
    'processing -> pending, due after the backoff, or dead if that was the last attempt; P7002 LEASE_LOST for anybody but the holder.';

revoke all on all functions in schema modkit_outbox from public;
