-- A dead lane head stays the lowest number of its lane and is never due, so that it holds the lane.
update outbox_delivery
set due_at = 9223372036854775807, claimed_at = null, lease_expires_at = null, lease_token = null, claimed_by = null
where message_id = :message_id and sink = :sink
