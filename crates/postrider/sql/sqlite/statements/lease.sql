-- pending -> leased: the counters go up with the claim, so that a crash counts.
-- Caller: claim, for each row that it picked in this transaction and that was not buried. Index: delivery_pk.
update outbox_delivery
set attempt_no = attempt_no + 1, attempt_count = attempt_count + 1, max_attempts = :max_attempts, claimed_at = :now,
    lease_expires_at = :now + :lease_us, lease_token = :lease_token, claimed_by = :worker_id
where message_id = :message_id and sink = :sink
