-- pending, due later -> pending, due now: those that are due next first. What is leased, and a dead lane head that parks
-- its lane, is left alone. `message_ids` is a JSON array of ids as 32 hexadecimal digits; null: any message, any sink.
-- Caller: retry_now. Zero rows: nothing waits for its time.
update outbox_delivery
set due_at = :now
where (message_id, sink) in (
    select d.message_id, d.sink from outbox_delivery d
    where d.due_at > :now and d.due_at < 9223372036854775807 and d.lease_token is null
      and (:message_ids is null or d.message_id in (select unhex(i.value) from json_each(:message_ids) i))
      and (:sink is null or d.sink = :sink)
    order by d.due_at, d.message_id, d.sink
    limit :at_most
)
