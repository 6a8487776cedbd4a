-- dead -> pending for what had left the queue: due now, with a new budget; attempt numbers go on. In a lane it comes
-- back at its own number, and waits while a lease lives anywhere in the lane.
insert into outbox_delivery (message_id, sink, due_at, priority, sequence_id, tenant_id, lane, attempt_no)
select l.message_id, l.sink, :now, l.priority, l.sequence_id, l.tenant_id, l.lane, l.attempt_no
from outbox_dead_letter l
where l.message_id = :message_id and l.sink = :sink
on conflict do nothing
