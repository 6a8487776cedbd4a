-- Who may put messages in front of a lane. A claim takes a lane by its lowest number; a redrive or a replay adds lower ones.
-- If both could be under way at once, each would decide by what the other has not committed yet, and the lane would be in
-- two hands. So a claim that looks at lanes shares a lock of the sink with other claims, and whoever adds to the front of
-- lanes holds it alone, until the transaction ends. Claims never wait for it: they leave lanes to the next claim.
-- Sinks share sixteen locks, by a hash of the name: while somebody adds to the front of lanes, lanes of one other sink in
-- sixteen wait, too. (A lock a lane would fill the server's lock table; a row for each sink would be written by every claim.)

-- Internal: which lock of locks.sql a sink has.
create or replace function :"schema".lane_lock(sink text)
    returns text language sql immutable
    set search_path = pg_catalog, :"schema", pg_temp
as $$ select 'lock_lanes_' || (hashtextextended(sink collate "C", 0) & 15) $$;
comment on function :"schema".lane_lock is 'Internal: the lock of the lanes of a sink.';

-- Internal: called by change_letters, replay_batch and apply_routes, before they look at what is leased. Waits for claims under way. The
-- locks are taken in their own order, so that two callers never wait for each other in a circle.
create or replace function :"schema".hold_lane_fronts(sinks text[])
    returns void language plpgsql volatile
    set search_path = pg_catalog, :"schema", pg_temp
as $$
declare
    v_lock text;
begin
    for v_lock in select distinct lane_lock(s.sink) from unnest(sinks) s (sink) order by 1 loop
        execute format('lock table %I in exclusive mode', v_lock);
    end loop;
end
$$;
comment on function :"schema".hold_lane_fronts is
    'Internal: nobody claims from lanes of these sinks until the transaction ends.';

-- Internal: called by claim. False: somebody puts messages in front of lanes.
create or replace function :"schema".lane_fronts_are_free(sink text)
    returns boolean language plpgsql volatile
    set search_path = pg_catalog, :"schema", pg_temp
as $$
begin
    execute format('lock table %I in row share mode nowait', lane_lock(sink));
    return true;
exception when lock_not_available then
    return false;
end
$$;
comment on function :"schema".lane_fronts_are_free is
    'Internal: true, and so until the transaction ends, if nobody puts messages in front of lanes of this sink.';

-- How far into a lane a lease may reach: what is put in front of the lane gets this as its lane_tail and waits until no lease
-- lives up to there. A claim takes at most 10,000 of a lane, in front of which as many may have come back; and what came back
-- before knows how far it was then. Internal: called by change_letters, replay_batch and apply_routes, under
-- hold_lane_fronts. Index: delivery_lane.
create or replace function :"schema".lane_reach(sink text, lane text)
    returns bigint language sql stable
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
comment on function :"schema".lane_reach is 'Internal: the farthest number of a lane that is leased.';
