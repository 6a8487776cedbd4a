-- Who holds what, under which token, and until when. Whoever has a token may complete what it holds, so its first eight
-- characters are all that is shown: enough to tell leases apart.
create view :"schema".in_flight as
select d.message_id, d.sink, d.claimed_by, left(d.lease_token::text, 8) as lease_token, d.claimed_at, d.lease_expires_at,
       d.lease_expires_at <= now() as expired, d.attempt_no, d.attempt_count, d.max_attempts, d.tenant_id, d.lane,
       d.sequence_id, d.priority
from :"schema".delivery d
where d.lease_token is not null;
comment on view :"schema".in_flight is 'Leased deliveries: who holds each, and until when.';
grant select on :"schema".in_flight to :"relay";
