-- The producer's door, for any language: an INSERT into this view, in the caller's transaction, is one message.
-- Caller: ../statements/enqueue.sql, and whoever speaks SQL. Transition: nothing -> pending, one delivery for each sink
--   that the topic is routed to (`default` if to none). A known dedupe key: nothing is written.
-- Locks: SQLite's one write lock until the transaction ends, so commit order is sequence order and a rollback leaves no
--   hole. An error undoes the whole statement: SQLITE_CONSTRAINT, with the name of the rule that is broken.
-- message_id: a UUID as 16 bytes; without one, one is made. payload: JSON text, or body: bytes.
-- due_at, occurred_at: microseconds since 1970; delay_us: microseconds from now. due_at defaults to the time the message
-- occurred (not later than now), so that order by due_at is order by age.
create view outbox_enqueue (
    message_id, topic, payload, namespace, tenant_id, lane, dedupe_key, priority, headers, due_at, occurred_at, body,
    content_type, delay_us
) as
select null, null, null, null, null, null, null, null, null, null, null, null, null, null where false;

create trigger outbox_enqueue_makes_an_id instead of insert on outbox_enqueue
when new.message_id is null
begin
    insert into outbox_enqueue (message_id, topic, payload, namespace, tenant_id, lane, dedupe_key, priority, headers,
                                due_at, occurred_at, body, content_type, delay_us)
    -- UUIDv7: milliseconds, version, and random digits with the variant in front.
    select unhex(printf('%012x', c.now / 1000) || '7' || substr(hex(randomblob(2)), 2)
                 || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(8)), 2)),
           new.topic, new.payload, new.namespace, new.tenant_id, new.lane, new.dedupe_key, new.priority, new.headers,
           new.due_at, new.occurred_at, new.body, new.content_type, new.delay_us
    from outbox_clock c;
end;

create trigger outbox_enqueue_writes instead of insert on outbox_enqueue
when new.message_id is not null
begin
    select raise(abort, 'dedupe_key does not belong to the tenant: begin it with the tenant id and "/"')
    where new.tenant_id is not null and new.dedupe_key is not null
      and substr(new.dedupe_key, 1, length(new.tenant_id) + 1) <> new.tenant_id || '/'
      -- A UUID may stand there as 32 digits, too.
      and not (substr(new.dedupe_key, 1, 33) = replace(new.tenant_id, '-', '') || '/'
               and length(replace(new.tenant_id, '-', '')) = 32
               and replace(new.tenant_id, '-', '') not glob '*[^0-9a-f]*'
               and new.tenant_id like '________-____-____-____-____________');
    select raise(abort, 'headers must be a JSON object whose values are strings')
    where new.headers is not null and exists (select 1 from json_each(new.headers) h where h.type <> 'text');
    select raise(abort, 'give due_at or delay_us, not both') where new.due_at is not null and new.delay_us is not null;
    select raise(abort, 'due_at and occurred_at must be in the years 1 to 9999')
    where not (coalesce(new.due_at, 0) between -62135596800000000 and 253402300799999999
               and coalesce(new.occurred_at, 0) between -62135596800000000 and 253402300799999999);
    select raise(abort, 'delay_us must be between 0 and 3155760000000000 (100 years)')
    where not (new.delay_us between 0 and 3155760000000000);

    insert into outbox_dedupe (namespace, topic, tenant, dedupe_key, message_id)
    select coalesce(new.namespace, 'default'), new.topic, coalesce(new.tenant_id, ''), new.dedupe_key, new.message_id
    where new.dedupe_key is not null
    on conflict (namespace, topic, tenant, dedupe_key) do nothing;

    -- From here on for a new message only: without a key, or with a key that now stands for this very message.
    insert into outbox_lane_sequence (lane, last_sequence)
    select new.lane, 1
    where new.lane is not null
      and (new.dedupe_key is null or new.message_id = (
          select k.message_id from outbox_dedupe k
          where k.namespace = coalesce(new.namespace, 'default') and k.topic = new.topic
            and k.tenant = coalesce(new.tenant_id, '') and k.dedupe_key = new.dedupe_key))
    on conflict (lane) do update set last_sequence = last_sequence + 1;

    insert into outbox_message (id, enqueued_at, occurred_at, priority, sequence_id, tenant_id, namespace, topic, lane,
                                dedupe_key, content_type, headers, payload, body)
    select new.message_id, c.now, coalesce(new.occurred_at, c.now), coalesce(new.priority, 0),
           (select s.last_sequence from outbox_lane_sequence s where s.lane = new.lane),
           new.tenant_id, coalesce(new.namespace, 'default'), new.topic, new.lane, new.dedupe_key, new.content_type,
           new.headers, new.payload, new.body
    from outbox_clock c
    where new.dedupe_key is null or new.message_id = (
          select k.message_id from outbox_dedupe k
          where k.namespace = coalesce(new.namespace, 'default') and k.topic = new.topic
            and k.tenant = coalesce(new.tenant_id, '') and k.dedupe_key = new.dedupe_key);

    -- A known key leaves no message with this id, so nothing is sent.
    insert into outbox_delivery (message_id, sink, occurred_at, due_at, priority, sequence_id, tenant_id, lane)
    select m.id, coalesce(r.sink, 'default'), m.occurred_at,
           coalesce(new.due_at, c.now + new.delay_us, min(m.occurred_at, c.now)), m.priority, m.sequence_id,
           m.tenant_id, m.lane
    from outbox_message m
    cross join outbox_clock c
    left join (
        select distinct r.sink from outbox_route r
        where r.namespace in ('*', coalesce(new.namespace, 'default')) and new.topic glob r.topic_glob
    ) r on true
    where m.id = new.message_id;
end;
