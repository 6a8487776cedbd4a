-- Group roles and what each may do. Applied by `postrider migrate roles`, and again after functions or views changed.
-- :"owner" and the others are quoted role names, `<prefix>_owner` and so on (the prefix is the schema's name unless
-- --prefix says otherwise). Roles belong to the whole server; give them to login roles with GRANT.
--
-- producer  may enqueue, and nothing else          relay    may claim, complete and keep house, not rewrite
-- receiver  may note what it received
-- control   reads everything, acts on dead letters auditor  reads everything but the sequences
-- owner     NOLOGIN; owns schema, tables and functions, which run with its rights

revoke all on schema :"schema" from public;
revoke all on all tables in schema :"schema" from public;
revoke all on all functions in schema :"schema" from public;

revoke all on all tables in schema :"schema" from :"producer", :"receiver", :"relay", :"control", :"auditor";
revoke all on all functions in schema :"schema" from :"producer", :"receiver", :"relay", :"control", :"auditor";
grant usage on schema :"schema" to :"producer", :"receiver", :"relay", :"control", :"auditor";

grant execute on function
    :"schema".enqueue(text, jsonb, text, uuid, text, text, integer, jsonb, timestamptz, timestamptz, bytea, text, numeric),
    :"schema".enqueue_many(text[], jsonb[], text[], uuid[], text[], text[], integer[], jsonb[], timestamptz[], timestamptz[], bytea[], text[], numeric[])
    to :"producer", :"control";
grant execute on function
    :"schema".enqueue_as(text, text, jsonb, text, uuid, text, text, integer, jsonb, timestamptz, timestamptz, bytea, text, numeric)
    to :"control";

grant execute on function
    :"schema".receive(uuid, uuid, text, text, bigint),
    :"schema".receive_many(uuid[], uuid[], text[], text[], bigint[]),
    :"schema".prune_inbox_at_retention(integer)
    to :"receiver";

grant execute on function
    :"schema".claim(text, integer, numeric, text, integer, uuid, integer, timestamptz, integer, bigint, uuid, boolean),
    :"schema".complete(uuid, uuid, text, text, numeric, text, text, text, text, integer, text),
    :"schema".complete_many(uuid[], uuid[], text[], text, numeric[], text[], text[], text[], text[], integer[], text[]),
    :"schema".mark_delivered(uuid, uuid[]),
    :"schema".renew(uuid, uuid[], numeric),
    :"schema".release(uuid, uuid[]),
    :"schema".abandon(uuid),
    :"schema".content(uuid, uuid),
    :"schema".has_due(text, uuid),
    :"schema".repair_expired_leases(integer),
    :"schema".make_partitions(integer),
    :"schema".prune_at_retention(integer),
    :"schema".prune_inbox_at_retention(integer),
    :"schema".sleep(text, numeric),
    :"schema".woke(text),
    :"schema".report(text, text, numeric, jsonb),
    :"schema".sign_off(text),
    :"schema".measure(integer),
    -- A destination that says "no more" pauses its sink; routes in a relay's configuration are added if they are missing.
    :"schema".configure_sink(text, boolean, text, text),
    :"schema".add_route(text, text, text, text)
    to :"relay";
grant select on :"schema".status, :"schema".in_flight, :"schema".lanes, :"schema".relays, :"schema".samples, :"schema".route
    to :"relay";
grant execute on function :"schema".schema_version() to :"producer", :"receiver", :"relay", :"control", :"auditor";
-- Views check the rights to their functions against the reader.
grant execute on function :"schema".message_id_time(uuid) to :"control", :"auditor";
grant execute on function
    :"schema".find_messages(text, text, text, uuid, text, text, uuid, uuid, integer, integer),
    :"schema".find_ids(text, uuid, uuid, integer, integer),
    :"schema".find_keys(text, text, text, integer)
    to :"control", :"auditor";
grant execute on function :"schema".sink_is_known(text, uuid, uuid, uuid[]) to :"control", :"auditor";
grant execute on function :"schema".topic_like(text) to :"control", :"auditor";
grant execute on function :"schema".queues(), :"schema".recent_attempts() to :"relay", :"control", :"auditor";

grant execute on function
    :"schema".redrive(uuid[], boolean, text, text),
    :"schema".redrive_matching(uuid[], text, text, text, uuid, text, text, text, timestamptz, timestamptz, integer, text),
    :"schema".discard(uuid[], text, text),
    :"schema".discard_matching(uuid[], text, text, text, uuid, text, text, text, timestamptz, timestamptz, integer, text),
    :"schema".skip(text, text, text),
    :"schema".replay(uuid[], text, timestamptz, timestamptz, text, text, boolean, text),
    :"schema".replay_batch(uuid[], text, timestamptz, timestamptz, text, text, uuid, integer, integer, timestamptz, boolean, text),
    :"schema".retry_now(uuid[], text, text, text, uuid, text, integer, text),
    :"schema".cancel(uuid[], text, text, text, uuid, text, integer, text),
    :"schema".unclaim_stuck(numeric, text),
    :"schema".prunable(numeric),
    :"schema".repair_expired_leases(integer),
    :"schema".configure_sink(text, boolean, text, text),
    :"schema".add_route(text, text, text, text),
    :"schema".remove_route(text, text, text, text),
    :"schema".make_partitions(integer),
    :"schema".prune(numeric, integer, text),
    :"schema".prune_inbox(numeric, integer),
    :"schema".prune_at_retention(integer),
    :"schema".prune_inbox_at_retention(integer)
    to :"control";
grant select on all tables in schema :"schema" to :"control", :"auditor";
revoke all on :"schema".lane_sequence from :"auditor";
