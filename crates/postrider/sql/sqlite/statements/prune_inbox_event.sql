-- received -> gone. Its lane, if it has one, remembers the number.
delete from outbox_inbox where event_id = :event_id and tenant = :tenant
