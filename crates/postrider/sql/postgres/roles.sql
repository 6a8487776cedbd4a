-- Group roles and what each may do. Applied by `postrider migrate roles`, and again after functions or views changed.
-- :"owner" and the others are quoted role names, `<prefix>_owner` and so on (the prefix is the schema's name unless
-- --prefix says otherwise). Roles belong to the whole server; give them to login roles with GRANT.
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

grant execute on function :"schema".enqueue, :"schema".enqueue_many to :"producer", :"operator";
grant execute on function :"schema".enqueue_as to :"operator";

grant execute on function :"schema".receive, :"schema".receive_many, :"schema".prune_inbox_at_retention to :"receiver";

grant execute on function
    :"schema".claim, :"schema".complete, :"schema".complete_many, :"schema".mark_delivered, :"schema".renew,
    :"schema".release, :"schema".abandon, :"schema".content, :"schema".has_due, :"schema".repair_expired_leases,
    :"schema".make_partitions, :"schema".prune_at_retention, :"schema".prune_inbox_at_retention, :"schema".sleep,
    :"schema".woke, :"schema".report, :"schema".sign_off, :"schema".measure,
    -- A destination that says "no more" pauses its sink; routes in a relay's configuration are added if they are missing.
    :"schema".configure_sink, :"schema".add_route
    to :"relay";
grant select on :"schema".status, :"schema".in_flight, :"schema".lanes, :"schema".relays, :"schema".samples, :"schema".route
    to :"relay";
grant execute on function :"schema".schema_version to :"producer", :"receiver", :"relay", :"reader", :"operator", :"auditor";
-- Views check the rights to their functions against the reader.
grant execute on function :"schema".message_id_time to :"reader", :"operator", :"auditor";
grant execute on function :"schema".find_messages, :"schema".find_ids, :"schema".find_keys to :"reader", :"operator", :"auditor";
grant execute on function :"schema".sink_is_known to :"reader", :"operator", :"auditor";
grant execute on function :"schema".topic_like to :"reader", :"operator", :"auditor";
grant execute on function :"schema".prunable to :"reader", :"operator";
grant execute on function :"schema".queues, :"schema".recent_attempts to :"relay", :"reader", :"operator", :"auditor";

grant execute on function
    :"schema".redrive, :"schema".redrive_matching, :"schema".discard, :"schema".discard_matching, :"schema".skip,
    :"schema".replay, :"schema".replay_batch, :"schema".retry_now, :"schema".cancel, :"schema".unclaim_stuck,
    :"schema".repair_expired_leases, :"schema".configure_sink, :"schema".add_route,
    :"schema".remove_route, :"schema".apply_routes, :"schema".make_partitions, :"schema".prune, :"schema".prune_inbox,
    :"schema".prune_at_retention, :"schema".prune_inbox_at_retention, :"schema".begin_import, :"schema".check_rows,
    :"schema".import_rows, :"schema".forward_rows, :"schema".as_json
    to :"operator";
grant select on all tables in schema :"schema" to :"reader", :"operator", :"auditor";
revoke all on :"schema".lane_sequence from :"auditor";
