-- Leases a batch.
update floor_job set lease_token = ?1, lease_expires_at = unixepoch() + 60
where message_id in (
    select message_id from floor_job
    where due_at <= unixepoch() and (lease_expires_at is null or lease_expires_at < unixepoch())
    order by due_at, message_id
    limit ?2
)
returning message_id
