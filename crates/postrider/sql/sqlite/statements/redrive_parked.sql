-- dead -> pending for a lane head that stayed in its place: due now, with a new budget.
update outbox_delivery set due_at = :now, attempt_count = 0 where message_id = :message_id and sink = :sink
