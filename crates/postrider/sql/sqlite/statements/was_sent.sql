-- Whether a message was delivered to a sink. Caller: list. Index: attempt_pk. Zero rows: it was not.
select 1 from outbox_attempt a where a.message_id = :message_id and a.sink = :sink and a.state = 'DISPATCHED' limit 1
