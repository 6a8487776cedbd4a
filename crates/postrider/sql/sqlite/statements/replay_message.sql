-- delivered (or never sent to this sink) -> pending; attempt numbers go on. What is pending, leased or dead for the sink
-- is left alone. In a lane it comes back at its own number. Caller: replay. Zero rows: nothing to replay.
insert into outbox_delivery (message_id, sink, due_at, priority, sequence_id, tenant_id, lane, attempt_no)
select m.id, :sink, :due_at, m.priority, m.sequence_id, m.tenant_id, m.lane,
       coalesce((select max(a.attempt_no) from outbox_attempt a where a.message_id = m.id and a.sink = :sink), 0)
from outbox_message m
where m.id = :message_id
  and not exists (select 1 from outbox_dead_letter l where l.message_id = m.id and l.sink = :sink)
on conflict do nothing
