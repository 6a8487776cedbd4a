-- Goes once around the lanes of a sink, beginning after `start_lane`: first to the last lane, then from the first lane
-- up to `start_lane`. Stops when `room` is filled or, on either leg, `hop_limit` heads were looked at; `last_lane` is
-- where.
-- Caller: claim, once (rows locked by this transaction would not be skipped). Internal.
-- Locks and indexes: those of claim_lane_runs.
create or replace function :"schema".claim_lanes(
    sink text, tenant_id uuid, room integer, at_time timestamptz, max_attempts integer,
    lane_run integer, start_lane text, hop_limit integer,
    out places tid[], out lane_tails bigint[], out unsettled_ids uuid[], out last_lane text
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
    unsettled_ids := '{}';
    last_lane := start_lane;
    if room < 1 then
        return;
    end if;
    for leg in 1 .. case when start_lane = '' then 1 else 2 end loop
        select array_agg(r.place) filter (where r.place is not null) as places,
               array_agg(r.lane_tail) filter (where r.place is not null) as tails,
               array_agg(r.unsettled_id) filter (where r.unsettled_id is not null) as unsettled_ids,
               max(r.lane collate "C") as last_lane,
               bool_or(r.at_limit) as hop_limited
        into v_run
        from claim_lane_runs(sink, tenant_id, room - cardinality(places), at_time, max_attempts, lane_run,
                             case leg when 1 then start_lane else '' end, case leg when 2 then start_lane end,
                             hop_limit) r;
        places := places || coalesce(v_run.places, '{}');
        lane_tails := lane_tails || coalesce(v_run.tails, '{}');
        unsettled_ids := unsettled_ids || coalesce(v_run.unsettled_ids, '{}');
        if cardinality(places) >= room or v_run.hop_limited then
            last_lane := v_run.last_lane;
            exit;
        end if;
    end loop;
end
$$;
comment on function :"schema".claim_lanes(text, uuid, integer, timestamptz, integer, integer, text, integer) is
    'Internal to claim: one round over the lanes of a sink.';
