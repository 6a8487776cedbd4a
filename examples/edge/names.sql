-- The names of an older edge outbox over this one: `public.sync_outbox`, which can be inserted into and read by status. Apply it
-- with psql, as the outbox's owner, after `postrider migrate up`; it may be applied again. Logins that insert need the role
-- outbox_producer and INSERT on the view. New code calls outbox.enqueue. Forwarders are `postrider run`.
--
-- What is different: the outbox makes the id, which the cloud gets as event_id and RETURNING returns; an id that is given is
-- kept as dedupe key, after the tenant, so that it is taken only once. A row is inserted as pending. Statuses change by claims,
-- outcomes and operators; an UPDATE can only end a lease, as an exercise. A row that is being sent is `claimed`.
--
-- The view reads tables. `migrate up` makes the outbox's own views anew, and refuses to if a view of yours depends on one.

-- One branch for each place where a row can be, so that a question about what waits does not read the history.
create or replace view public.sync_outbox as
select d.message_id as id, m.tenant_id, m.topic as event_type,
       case when d.lease_token is null then 'pending' else 'claimed' end as status, d.due_at as next_attempt_at,
       d.claimed_by, d.claimed_at, d.lease_expires_at, d.attempt_count, a.completed_at as last_attempt_at,
       a.error_code as last_error_code, a.error_message as last_error_message, null::timestamptz as failed_at,
       null::text as dlq_reason, d.priority, d.occurred_at, m.payload as payload_json, m.content_bytes as payload_size_bytes
from outbox.delivery d
join outbox.message m on m.id = d.message_id
left join lateral (
    select t.completed_at, t.error_code, t.error_message from outbox.attempt t
    where t.message_id = d.message_id and t.sink = d.sink order by t.attempt_no desc limit 1
) a on true
where d.sink = 'default' and d.due_at < 'infinity'
union all
select l.message_id, m.tenant_id, m.topic, 'dlq', null, null, null, null, l.attempt_count, a.completed_at, l.error_code,
       l.error_message, l.died_at, l.reason, l.priority, m.occurred_at, m.payload, m.content_bytes
from outbox.dead_letter l
join outbox.message m on m.id = l.message_id
left join lateral (
    select t.completed_at from outbox.attempt t
    where t.message_id = l.message_id and t.sink = l.sink order by t.attempt_no desc limit 1
) a on true
where l.sink = 'default'
union all
select m.id, m.tenant_id, m.topic, 'acked', null, null, null, null, a.attempt_no, a.completed_at, null, null, null, null,
       m.priority, m.occurred_at, m.payload, m.content_bytes
from outbox.message m
cross join lateral (
    select t.state, t.attempt_no, t.completed_at from outbox.attempt t
    where t.message_id = m.id and t.sink = 'default' order by t.attempt_no desc limit 1
) a
where a.state = 'DISPATCHED'
  and not exists (select from outbox.delivery d where d.message_id = m.id and d.sink = 'default');
comment on view public.sync_outbox is 'Messages and how they stand for the sink `default`. An INSERT enqueues.';

create or replace function public.sync_outbox_insert() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    v_given    constant uuid := new.id;
    v_created  boolean;
begin
    if new.status <> 'pending' or new.attempt_count <> 0
       or num_nonnulls(new.claimed_by, new.claimed_at, new.lease_expires_at, new.last_attempt_at, new.last_error_code,
                       new.last_error_message, new.failed_at, new.dlq_reason) > 0 then
        raise exception 'a row is inserted into sync_outbox as pending, without attempts'
            using errcode = '0A000', hint = 'Claims and attempts write the rest. `postrider import` takes over a whole table.';
    end if;
    -- When it is due carries its age: a time that has come would make an older row queue behind younger ones.
    select e.message_id, e.created into new.id, v_created
    from outbox.enqueue(topic => new.event_type, payload => new.payload_json, tenant_id => new.tenant_id,
                        dedupe_key => case when v_given is not null then concat(new.tenant_id || '/', v_given) end,
                        priority => new.priority, occurred_at => new.occurred_at,
                        due_at => case when new.next_attempt_at > now() then new.next_attempt_at end) e;
    if not v_created then
        raise exception 'sync_outbox has a row with the id %', v_given using errcode = 'unique_violation';
    end if;
    new.status := 'pending';
    new.next_attempt_at := coalesce(new.next_attempt_at, now());
    new.attempt_count := 0;
    new.priority := coalesce(new.priority, 0);
    new.occurred_at := coalesce(new.occurred_at, now());
    new.payload_size_bytes := octet_length(new.payload_json::text);
    return new;
end
$$;
comment on function public.sync_outbox_insert is 'Trigger: an INSERT into sync_outbox is an outbox.enqueue.';

create or replace trigger sync_outbox_insert instead of insert on public.sync_outbox
    for each row execute function public.sync_outbox_insert();

-- For the owner alone, who may write the outbox's tables: it runs with the rights of whoever calls it.
create or replace function public.sync_outbox_end_lease() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if to_jsonb(new) - 'lease_expires_at' <> to_jsonb(old) - 'lease_expires_at'
       or not coalesce(new.lease_expires_at <= old.lease_expires_at, false) then
        raise exception 'an UPDATE of sync_outbox can only let a lease end sooner'
            using errcode = '0A000', hint = 'Statuses change by claims, outcomes, and `postrider dlq`, `retry-now` and `cancel`.';
    end if;
    update outbox.delivery d set lease_expires_at = new.lease_expires_at
    where d.message_id = old.id and d.sink = 'default' and d.claimed_by = old.claimed_by and d.claimed_at = old.claimed_at;
    -- Nothing was changed if another holds it by now.
    return case when found then new end;
end
$$;
comment on function public.sync_outbox_end_lease is 'Trigger: an UPDATE of sync_outbox lets a lease end, to see what follows.';

create or replace trigger sync_outbox_end_lease instead of update on public.sync_outbox
    for each row execute function public.sync_outbox_end_lease();
