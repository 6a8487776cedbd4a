-- How a relay records outcomes. Called by `store/postgres/complete.rs`; the rules are in functions/complete_many.sql.

-- name: complete
-- Those that were still held under their token. A delay is text, so that no float is in between.
select message_id, sink, attempt_no, dead
from :"schema".complete_many(message_id => $1, lease_token => $2, state => $3, worker_id => $4,
                             retry_after_seconds => $5::text[]::numeric[], error_code => $6, error_message => $7,
                             reference => $8, code => $9, latency_ms => $10, answer => $11)
