-- When the last sample ended. Caller: measure, to see that nobody else measured meanwhile.
select max(m.at) from outbox_sample m
