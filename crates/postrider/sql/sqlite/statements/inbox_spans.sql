-- What a lane remembers, lowest number first. Index: inbox_lane_pk.
select l.first_sequence, l.last_sequence, l.newest_event_id
from outbox_inbox_lane l
where l.source = :source and l.lane = :lane and l.tenant = :tenant
order by l.first_sequence
