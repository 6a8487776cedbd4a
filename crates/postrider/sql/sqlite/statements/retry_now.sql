-- pending, due later -> pending, due now. Caller: retry_now, for each that choose_pending found.
update outbox_delivery set due_at = :now where message_id = :message_id and sink = :sink
