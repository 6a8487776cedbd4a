-- One login for each part of the system, each with a role of the outbox and no more. Applied by `run` and by the tests, as the
-- owner, after schema.sql and `postrider migrate roles`. Logins belong to the whole server.

create role payments_ingest login in role outbox_producer;
create role payments_relay login in role outbox_relay;
create role payments_operator login in role outbox_operator;
create role payments_auditor login in role outbox_auditor;

grant select, insert on instructions to payments_ingest;
grant select on instructions to payments_operator, payments_auditor;
