-- leased -> pending, due as before: the attempt number is given back and nothing is recorded. Fenced by the token and
-- the end of the lease. Zero rows: the lease is lost.
update outbox_delivery
set attempt_no = attempt_no - 1, attempt_count = attempt_count - 1,
    claimed_at = null, lease_expires_at = null, lease_token = null, claimed_by = null
where message_id = :message_id and lease_token = :lease_token and lease_expires_at > :now
