-- Who holds what, under which token, and until when. For a person's eyes: ids and times as text, and of the token its first
-- eight characters, which tell leases apart and complete nothing.
create view outbox_in_flight as
select lower(substr(hex(d.message_id), 1, 8) || '-' || substr(hex(d.message_id), 9, 4) || '-' || substr(hex(d.message_id), 13, 4) || '-'
             || substr(hex(d.message_id), 17, 4) || '-' || substr(hex(d.message_id), 21)) as message_id,
       d.sink, d.claimed_by, substr(lower(hex(d.lease_token)), 1, 8) as lease_token,
       strftime('%Y-%m-%dT%H:%M:%fZ', d.claimed_at / 1000000.0, 'unixepoch') as claimed_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', d.lease_expires_at / 1000000.0, 'unixepoch') as lease_expires_at,
       d.lease_expires_at <= c.now as expired, d.attempt_no, d.attempt_count, d.max_attempts, d.lane, d.sequence_id,
       d.priority
from outbox_delivery d cross join outbox_clock c
where d.lease_token is not null;
