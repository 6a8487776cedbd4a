-- How many deliveries wait for their time: what retry_now would take.
select count(*) from outbox_delivery d
where d.due_at > :now and d.due_at < 9223372036854775807 and d.lease_token is null
  and (:message_ids is null or d.message_id in (select unhex(i.value) from json_each(:message_ids) i))
  and (:sink is null or d.sink = :sink)
