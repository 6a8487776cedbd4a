-- Leases a batch. By place, so that the plan is the same whatever the planner thinks of the table.
update :"schema".floor_job j
set claimed_at = now(), lease_expires_at = now() + interval '60 seconds', lease_token = $2, claimed_by = 'floor',
    attempt_no = j.attempt_no + 1
where j.ctid = any (array(
    select d.ctid from :"schema".floor_job d
    where d.due_at <= now() and (d.lease_expires_at is null or d.lease_expires_at < now())
    order by d.due_at, d.id
    limit $1
    for update skip locked
))
returning j.id, j.payload::text
