-- Ends leases as delivered: deletes the jobs and writes their attempts.
with gone as (
    delete from :"schema".floor_job j
    where j.id = any ($1) and j.lease_token = $2 and j.lease_expires_at > now()
    returning j.id, j.attempt_no, j.claimed_at, j.claimed_by
)
insert into :"schema".floor_attempt (job_id, attempt_no, claimed_at, completed_at, worker_id, state)
select g.id, g.attempt_no, g.claimed_at, clock_timestamp(), g.claimed_by, 'DISPATCHED' from gone g
