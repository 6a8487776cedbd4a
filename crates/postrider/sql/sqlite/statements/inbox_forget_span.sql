-- A span that another took in, one of too many, or of a lane that is counted anew.
delete from outbox_inbox_lane
where source = :source and lane = :lane and tenant = :tenant and first_sequence = :first_sequence
