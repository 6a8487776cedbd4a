-- When the last sample that is not from the future ended. Caller: measure, to see that nobody else measured meanwhile.
select max(m.at) from outbox_sample m where m.at <= :now
