-- One message, in the caller's transaction. The rules are those of the view ../views/enqueue.sql.
-- Caller: every adapter of src/enqueue, with parameters in this order. Transition: nothing -> pending.
insert into outbox_enqueue (message_id, topic, payload, namespace, tenant_id, lane, dedupe_key, priority, headers,
                            due_at, occurred_at, body, content_type, delay_us)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
