-- The messages that a dedupe key stands for in one topic, without a tenant and of the tenant that the key begins with.
-- Caller: list. Index: dedupe_pk.
select d.message_id from outbox_dedupe d
where d.namespace = :namespace and d.topic = :topic and d.tenant in ('', :tenant) and d.dedupe_key = :dedupe_key
