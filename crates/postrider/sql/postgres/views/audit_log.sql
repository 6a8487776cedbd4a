-- What operators did, newest by id.
create view :"schema".audit_log as
select a.id, a.at, a.actor, a.db_user, a.action, a.detail, a.affected
from :"schema".audit a;
comment on view :"schema".audit_log is 'What operators did: who, when, the action, and how much it changed.';
