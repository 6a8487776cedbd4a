-- leased -> pending, after settle.sql has recorded the lost attempt. Callers: repair and unclaim.
-- Zero rows: the delivery was buried.
update outbox_delivery
set claimed_at = null, lease_expires_at = null, lease_token = null, claimed_by = null
where message_id = :message_id and sink = :sink and lease_token is not null
