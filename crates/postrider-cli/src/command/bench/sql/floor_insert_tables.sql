-- A batch into the outbox's two tables, without rules, keys, lanes and routes.
with messages as (
    insert into :"schema".message (id, occurred_at, priority, content_bytes, namespace, topic, payload)
    select u.id, now(), 0, octet_length(u.payload), 'default', 'bench', u.payload::jsonb
    from unnest($1::uuid[], $2::text[]) u (id, payload)
)
insert into :"schema".delivery (message_id, occurred_at, due_at, priority, size_bytes, sink)
select u.id, now(), now(), 0, octet_length(u.payload), 'default' from unnest($1::uuid[], $2::text[]) u (id, payload)
