-- What the outbox is set to, and how many messages lie in the default partition (counted to $1 at most).
select extract(epoch from s.retention)::double precision as retention_seconds,
       extract(epoch from s.dedupe_window)::double precision as dedupe_window_seconds,
       extract(epoch from s.partition_width)::double precision as partition_width_seconds,
       s.partitions_ahead,
       (select count(*) from (select from outbox.message_rest limit $1) r) as rest_rows
from outbox.setting s
