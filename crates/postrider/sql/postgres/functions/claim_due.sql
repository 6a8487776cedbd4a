-- Picks and locks up to `room` due deliveries without a lane, no more than `room_bytes` of them: priority first, then due time,
-- then id.
-- Caller: claim, in whose transaction the locks stand and whose planner settings hold here. Internal.
-- Locks: each picked row, FOR UPDATE SKIP LOCKED, so claimers neither overlap nor wait.
-- Index: delivery_due, or delivery_due_of_tenant for one tenant. It hops from priority to priority, upwards and landing on
--   the latest due time of each: what was delivered since the last vacuum leaves its traces at the earliest. (Of a priority
--   that was delivered to its end they are all stepped over.) Then it reads what is due of each, the highest first, from
--   `due_from` on; what is not due yet costs two probes a priority, however much it is.
-- Returns where the rows stand (their ctids, good while the locks are held), the ids of those that need more than a lease
-- (the last lease ended without an outcome, or no attempt is left), and how long all are as they are sent. `tried`: some
-- were tried before. `more`: one that is due did not fit any more. `at_least_one`: the first is taken however large it is.
--
-- One statement for each step, and for each index: an empty claim starts two of them, and none that is made for thousands.
create or replace function :"schema".pick_due(
    sink text, tenant_id text, lowest integer, room integer, room_bytes bigint, at_least_one boolean,
    at_time timestamptz, due_from timestamptz,
    out places tid[], out bytes bigint, out tried boolean, out more boolean, out low uuid, out high uuid
)
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_priority    integer := pick_due.lowest;
    v_priorities  integer[] := '{}';
    v_found       record;
begin
    places := '{}';
    bytes := 0;
    tried := false;
    more := false;
    while v_priority is not null loop
        v_priorities := v_priority || v_priorities;
        if pick_due.tenant_id is null then
            v_priority := (
                select d.priority from delivery d
                where d.sink = pick_due.sink and d.lane is null and d.priority > v_priority
                order by d.priority, d.due_at desc, d.message_id desc limit 1);
        else
            -- In the words of the tenants' index, and of no other.
            v_priority := (
                select d.priority from delivery d
                where d.sink = pick_due.sink and d.tenant_id = pick_due.tenant_id
                  and num_nonnulls(d.lane) = 0 and num_nonnulls(d.tenant_id) = 1 and d.priority > v_priority
                order by d.priority, d.due_at desc, d.message_id desc limit 1);
        end if;
    end loop;

    foreach v_priority in array v_priorities loop
        exit when cardinality(places) >= room;
        if pick_due.tenant_id is null then
            select array_agg(p.place) as places, array_agg(p.message_id order by p.message_id) as ids,
                   sum(p.size_bytes) as bytes, bool_or(p.tried) as tried
            into v_found
            from (
                select d.ctid as place, d.message_id, d.size_bytes, d.attempt_count > 0 as tried
                from delivery d
                where d.sink = pick_due.sink and d.lane is null and d.priority = v_priority
                  and d.due_at <= pick_due.at_time and d.due_at >= pick_due.due_from
                  and (d.lease_expires_at is null or d.lease_expires_at <= pick_due.at_time)
                order by d.due_at, d.message_id
                limit room - cardinality(places)
                for update skip locked
            ) p;
        else
            select array_agg(p.place) as places, array_agg(p.message_id order by p.message_id) as ids,
                   sum(p.size_bytes) as bytes, bool_or(p.tried) as tried
            into v_found
            from (
                select d.ctid as place, d.message_id, d.size_bytes, d.attempt_count > 0 as tried
                from delivery d
                where d.sink = pick_due.sink and d.tenant_id = pick_due.tenant_id
                  and num_nonnulls(d.lane) = 0 and num_nonnulls(d.tenant_id) = 1 and d.priority = v_priority
                  and d.due_at <= pick_due.at_time and d.due_at >= pick_due.due_from
                  and (d.lease_expires_at is null or d.lease_expires_at <= pick_due.at_time)
                order by d.due_at, d.message_id
                limit room - cardinality(places)
                for update skip locked
            ) p;
        end if;
        if v_found.bytes is not null then
            places := places || v_found.places;
            tried := tried or v_found.tried;
            bytes := bytes + v_found.bytes;
            low := least(low, v_found.ids[1]);
            high := greatest(high, v_found.ids[cardinality(v_found.ids)]);
        end if;
    end loop;

    if bytes > room_bytes then
        select coalesce(array_agg(f.place order by f.nth) filter (where f.fits), '{}'),
               coalesce(sum(f.size_bytes) filter (where f.fits), 0), bool_or(not f.fits)
        into places, bytes, more
        from (
            select i.*, d.size_bytes,
                   sum(d.size_bytes) over (order by i.nth) <= room_bytes or (at_least_one and i.nth = 1) as fits
            from unnest(places) with ordinality i (place, nth)
            cross join lateral (select t.size_bytes from delivery t where t.ctid = i.place offset 0) d
        ) f;
    end if;
end
$$;
comment on function :"schema".pick_due is 'Internal to claim: locks due deliveries without a lane.';
