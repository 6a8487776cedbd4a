-- What operators did, newest by id, for a person's eyes: times as text.
create view outbox_audit_log as
select a.id, strftime('%Y-%m-%dT%H:%M:%fZ', a.at / 1000000.0, 'unixepoch') as at, a.actor, a.action, a.detail, a.affected
from outbox_audit a;
