-- Adds the attempt that this lease ends with. Caller: complete, for what complete_held.sql found in this transaction.
insert into outbox_attempt (message_id, sink, attempt_no, state, claimed_at, completed_at, latency_ms, worker_id, code,
                            reference, error_code, error_message, answer)
select d.message_id, d.sink, d.attempt_no, :state, d.claimed_at, :now, :latency_ms, d.claimed_by,
       substr(:code, 1, 255), substr(:reference, 1, 1000), substr(:error_code, 1, 255), substr(:error_message, 1, 4000),
       substr(:answer, 1, 8192)
from outbox_delivery d
where d.message_id = :message_id and d.sink = :sink
