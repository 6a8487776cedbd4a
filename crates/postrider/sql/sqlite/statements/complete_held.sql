-- The fence: the delivery, if it still holds the token, was claimed by this worker, and its lease has not ended.
-- Caller: complete. Index: delivery_pk. Zero rows: the lease is lost, and nothing may be written.
select d.sink, d.attempt_no, d.attempt_count >= d.max_attempts
from outbox_delivery d
where d.message_id = :message_id and d.lease_token = :lease_token and d.lease_expires_at > :now
  and d.claimed_by = :worker_id
