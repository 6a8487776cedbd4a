-- How many deliveries of a kind are pending, how many of those wait for their time, and how many a worker holds: what cancel
-- and retry_now would take, and what they leave alone. A dead lane head that parks its lane is none of them.
-- $1 messages, $2 sink, $3 namespace, $4 topic, $5 tenant, $6 lane; null: any.
select count(*) filter (where d.lease_token is null) as pending,
       count(*) filter (where d.lease_token is null and d.due_at > clock_timestamp()) as waiting,
       count(*) filter (where d.lease_token is not null) as leased
from outbox.delivery d
where d.due_at < 'infinity'
  and ($1::uuid[] is null or d.message_id = any ($1)) and ($2::text is null or d.sink = $2)
  and ($5::uuid is null or d.tenant_id = $5) and ($6::text is null or d.lane = $6)
  and (($3::text is null and $4::text is null) or exists (
      select from outbox.message m
      where m.id = d.message_id and ($3 is null or m.namespace = $3) and ($4 is null or m.topic like outbox.topic_like($4)) offset 0))
