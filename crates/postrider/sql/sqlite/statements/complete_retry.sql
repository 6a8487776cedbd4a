-- leased -> pending, due after the delay that the worker computed. Caller: complete.
update outbox_delivery
set due_at = :now + :retry_after_us, claimed_at = null, lease_expires_at = null, lease_token = null, claimed_by = null
where message_id = :message_id and sink = :sink
