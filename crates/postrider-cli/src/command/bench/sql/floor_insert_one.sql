-- One message and nothing else: into the outbox's own table, as its owner.
insert into :"schema".message (id, occurred_at, priority, content_bytes, namespace, topic, payload)
values ($1, now(), 0, octet_length($2), 'default', 'bench', $2::jsonb)
