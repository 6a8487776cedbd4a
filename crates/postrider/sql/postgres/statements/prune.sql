-- History that is over. Called by `store/postgres/prune.rs`. A relay may prune at the retention, and nothing else.

-- name: prune_at_retention
-- Messages that are older than the setting, and dedupe keys past their window.
select partitions_dropped::bigint, rest_deleted::bigint, dedupe_deleted::bigint from :"schema".prune_at_retention()

-- name: prunable
-- What it would take now.
select partitions as partitions_dropped, rest as rest_deleted, dedupe as dedupe_deleted
from :"schema".prunable(older_than_seconds => $1::text::numeric)

-- name: inbox
-- One batch of received events that are older than this.
select :"schema".prune_inbox(batch_size => $1, older_than_seconds => $2::text::numeric)

-- name: inbox_at_retention
-- The same for events that are older than the setting.
select :"schema".prune_inbox_at_retention(batch_size => $1)

-- name: make_partitions
-- Room for the messages of the next days.
select :"schema".make_partitions()
