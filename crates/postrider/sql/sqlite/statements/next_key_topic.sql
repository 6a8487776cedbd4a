-- The next pair of namespace and topic that has dedupe keys. Caller: list. Index: dedupe_pk. Zero rows: there is none.
select d.namespace, d.topic from outbox_dedupe d
where (d.namespace, d.topic) > (:namespace, :topic)
order by d.namespace, d.topic
limit 1
