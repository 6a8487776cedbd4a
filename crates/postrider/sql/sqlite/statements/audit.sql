-- What operators did, newest first. Caller: audit. Index: the table's own.
select a.id, a.at, a.actor, a.action, a.detail, a.affected
from outbox_audit a
where :before is null or a.id < :before
order by a.id desc
limit :limit
