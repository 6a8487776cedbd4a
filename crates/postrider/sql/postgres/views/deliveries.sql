-- Where each message stands for each sink that still has to do with it: pending, leased or dead. What was delivered
-- has no row here; its attempts tell.
create view :"schema".deliveries as
select d.message_id, d.sink,
       case when d.lease_token is not null then 'leased' when d.due_at = 'infinity' then 'dead' else 'pending' end as state,
       nullif(d.due_at, 'infinity') as due_at, d.priority, d.tenant_id, d.lane, d.sequence_id,
       d.attempt_no, d.attempt_count, d.max_attempts, d.claimed_by, d.claimed_at, d.lease_expires_at
from :"schema".delivery d
union all
select l.message_id, l.sink, 'dead', null, l.priority, l.tenant_id, l.lane, l.sequence_id,
       l.attempt_no, l.attempt_count, null, null, null, null
from :"schema".dead_letter l
where not l.parked;
comment on view :"schema".deliveries is 'Deliveries that have not ended well yet: pending, leased or dead.';
