-- leased -> leased for longer, from now. Fenced by the token and the end of the lease. Zero rows: the lease is lost.
update outbox_delivery
set lease_expires_at = :now + :lease_us
where message_id = :message_id and lease_token = :lease_token and lease_expires_at > :now
