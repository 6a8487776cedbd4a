-- Who may put messages in front of a lane. A claim takes a lane by its lowest number; a redrive or a replay adds lower ones.
-- If both could be under way at once, each would decide by what the other has not committed yet, and the lane would be in
-- two hands. So a claim that looks at lanes shares a lock of the sink with other claims, and whoever adds to the front of
-- lanes holds it alone, until the transaction ends. Claims never wait for it: they leave lanes to the next claim.
-- One advisory lock a sink, not one a lane: thousands of lanes would fill the server's lock table.

-- Internal: called by redrive_letters and replay_batch, before they look at what is leased. Waits for claims under way.
create or replace function :"schema".hold_lane_fronts(sink text)
    returns void
    language sql volatile
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select pg_advisory_xact_lock(hashtextextended('postrider/lanes/' || schema_name() || '/' || sink, 0))
$$;
comment on function :"schema".hold_lane_fronts(text) is 'Internal: nobody claims from lanes of this sink until the transaction ends.';

-- Internal: called by claim. False: somebody puts messages in front of lanes.
create or replace function :"schema".lane_fronts_are_free(sink text)
    returns boolean
    language sql volatile
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select pg_try_advisory_xact_lock_shared(hashtextextended('postrider/lanes/' || schema_name() || '/' || sink, 0))
$$;
comment on function :"schema".lane_fronts_are_free(text) is
    'Internal: true, and so until the transaction ends, if nobody puts messages in front of lanes of this sink.';

-- How far into a lane a lease may reach: what is put in front of the lane gets this as its lane_tail and waits until no lease
-- lives up to there. A claim takes at most 10,000 of a lane, in front of which as many may have come back; and what came back
-- before knows how far it was then. Internal: called by redrive_letters and replay_batch, under hold_lane_fronts. Index:
-- delivery_lane.
create or replace function :"schema".lane_reach(sink text, lane text)
    returns bigint
    language sql stable
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select greatest(max(n.sequence_id) filter (where n.lease_token is not null), max(n.lane_tail) filter (where n.nth = 1))
    from (
        select d.sequence_id, d.lease_token, d.lane_tail, row_number() over (order by d.sequence_id) as nth from delivery d
        where d.sink = lane_reach.sink and d.lane = lane_reach.lane and d.lane is not null
        order by d.sequence_id
        limit 20000
    ) n
$$;
comment on function :"schema".lane_reach(text, text) is 'Internal: the farthest number of a lane that is leased.';
