-- delivered -> gone. The message goes first: its attempts may go only when it is no longer there.
delete from outbox_message where id = :message_id
