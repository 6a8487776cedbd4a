-- Group roles and what each may do. Applied by `postrider migrate roles`, and again after functions or views changed.
-- :"owner" and the others are quoted role names, `<prefix>_owner` and so on (the prefix is the schema's name unless
-- --prefix says otherwise). Roles belong to the whole server; give them to login roles with GRANT.
--
-- What each may call stands behind the function in its file, and what a relay may read behind the view.
--
-- producer  may enqueue, and nothing else          relay    may claim, complete and keep house, not rewrite
-- receiver  may note what it received
-- reader    reads everything, changes nothing      operator reads everything, acts on what is in the outbox
-- auditor   reads everything but the sequences
-- owner     NOLOGIN; owns schema, tables and functions, which run with its rights

revoke all on schema :"schema" from public;
revoke all on all tables in schema :"schema" from public;
revoke all on all functions in schema :"schema" from public;

revoke all on all tables in schema :"schema" from :"producer", :"receiver", :"relay", :"reader", :"operator", :"auditor";
revoke all on all functions in schema :"schema" from :"producer", :"receiver", :"relay", :"reader", :"operator", :"auditor";
grant usage on schema :"schema" to :"producer", :"receiver", :"relay", :"reader", :"operator", :"auditor";

grant select on :"schema".route to :"relay";
grant select on all tables in schema :"schema" to :"reader", :"operator", :"auditor";
revoke all on :"schema".lane_sequence from :"auditor";
