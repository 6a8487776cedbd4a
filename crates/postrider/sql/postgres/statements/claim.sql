-- How a relay claims. Called by `store/postgres/claim.rs`; the rules are in functions/claim.sql.

-- name: claim
-- What is free, leased to this worker. Zero rows: nothing is.
select * from :"schema".claim(worker_id => $1, batch_size => $2, lease_seconds => $3::text::numeric, sink => $4,
                              max_attempts => $5, tenant_id => $6, lane_run => $7, due_from => coalesce($8, '-infinity'),
                              hop_limit => $9, max_bytes => $10, lease_token => $11, with_content => $12)

-- name: has_due
-- Whether a claim would find something.
select :"schema".has_due(sink => $1, tenant_id => $2)
