-- What becomes of a lease before its outcome. Called by `store/postgres/lease.rs`.

-- name: renew
-- leased -> leased for longer. Those that were still held under the token.
select message_id from :"schema".renew(lease_token => $1, message_ids => $2, lease_seconds => $3::text::numeric)

-- name: release
-- leased -> pending, due as before. Those that were still held under the token.
select * from :"schema".release(lease_token => $1, message_ids => $2)

-- name: abandon
-- Releases all that is held under a token, and refuses a claim under it that comes later.
select :"schema".abandon(lease_token => $1)

-- name: content
-- Headers and content of a message that is held under a token. Zero rows: it is not held under this token.
select headers, payload, body from :"schema".content(lease_token => $1, message_id => $2)

-- name: repair
-- Ends leases that ran out.
select :"schema".repair_expired_leases(batch_size => $1)

-- name: count_stale
-- How many leases have ended, and with $2 also those that were taken at least $1 seconds ago or in the future: what
-- unclaim_stuck would take.
select count(*)
from :"schema".delivery d
where d.lease_expires_at <= clock_timestamp()
   or ($2 and d.lease_token is not null
       and (d.claimed_at <= clock_timestamp() - $1::text::numeric * interval '1 second' or d.claimed_at > clock_timestamp()))
