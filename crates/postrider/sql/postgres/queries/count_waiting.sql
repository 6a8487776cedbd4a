-- How many deliveries wait for their time: what retry_now would take. $1: of these messages, $2: of this sink; null: any.
select count(*)
from outbox.delivery d
where d.due_at > clock_timestamp() and d.due_at < 'infinity' and d.lease_token is null
  and ($1::uuid[] is null or d.message_id = any ($1)) and ($2::text is null or d.sink = $2)
