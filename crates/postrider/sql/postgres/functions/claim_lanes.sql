-- Goes once around the lanes of a sink, beginning after `start_lane`: first to the last lane, then from the first lane
-- up to `start_lane`. Stops when `room` or `room_bytes` is filled or, on either leg, `hop_limit` heads were looked at;
-- `last_lane` is where. `at_least_one`: the first is taken however large it is.
-- Caller: claim, once (rows locked by this transaction would not be skipped). Internal.
-- Locks and indexes: those of claim_lane_runs.
create or replace function :"schema".claim_lanes(
    sink text, tenant_id text, room integer, room_bytes bigint, at_least_one boolean, at_time timestamptz,
    max_attempts integer, lane_run integer, start_lane text, hop_limit integer,
    out places tid[], out lane_tails bigint[], out bytes bigint, out tried boolean, out last_lane text, out low uuid,
    out high uuid
)
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_variable
declare
    v_run record;
begin
    places := '{}';
    lane_tails := '{}';
    bytes := 0;
    tried := false;
    last_lane := start_lane;
    if room < 1 then
        return;
    end if;
    for leg in 1 .. case when start_lane = '' then 1 else 2 end loop
        -- A lane's tail is the last number that is really handed out.
        select array_agg(k.place order by k.nth) filter (where k.fits) as places,
               array_agg(k.lane_tail order by k.nth) filter (where k.fits) as tails,
               coalesce(sum(k.size_bytes) filter (where k.fits), 0) as bytes, coalesce(bool_or(k.tried), false) as tried,
               array_agg(k.message_id order by k.message_id) filter (where k.fits) as ids,
               max(k.lane collate "C") filter (where k.fits or k.place is null) as last_lane,
               bool_or(k.at_limit) as hop_limited, bool_or(k.place is not null and not k.fits) as too_large
        into v_run
        from (
            select c.*, max(c.sequence_id) filter (where c.fits) over (partition by c.lane) as lane_tail
            from (
                select r.*, r.place is not null
                            and (sum(r.size_bytes) over (order by r.nth) <= room_bytes - bytes
                                 or (at_least_one and r.nth = 1 and places = '{}')) as fits
                from claim_lane_runs(sink, tenant_id, room - cardinality(places), at_time, max_attempts, lane_run,
                                     case leg when 1 then start_lane else '' end, case leg when 2 then start_lane end,
                                     hop_limit)
                     with ordinality as r (place, message_id, size_bytes, tried, lane, sequence_id, at_limit, nth)
            ) c
        ) k;
        places := places || coalesce(v_run.places, '{}');
        lane_tails := lane_tails || coalesce(v_run.tails, '{}');
        bytes := bytes + v_run.bytes;
        tried := tried or v_run.tried;
        low := least(low, v_run.ids[1]);
        high := greatest(high, v_run.ids[cardinality(v_run.ids)]);
        if cardinality(places) >= room or v_run.hop_limited or v_run.too_large then
            last_lane := coalesce(v_run.last_lane, last_lane);
            exit;
        end if;
    end loop;
end
$$;
comment on function :"schema".claim_lanes is 'Internal to claim: one round over the lanes of a sink.';
