-- Messages whose id ends with these hexadecimal digits, newest first: listings and logs show the end of an id.
-- Caller: Inspect::list, people. Reads only. Ids bound the time (message_id_floor).
--   What is still to be delivered and what is dead is searched whole, however old: the hot table and the dead letters are
--   read once, as the status does. Of history the ids of no more than `look_at` messages are looked at, newest first, from
--   the primary key alone.
-- If there is more history behind what was looked at, a last row has no message_id and `look_on` says where it ended (to
-- go on with as id_before). Locks: none. Indexes: message_pk. Zero rows: nothing found, and nothing more to look at.
create or replace function :"schema".find_ids(
    id_tail text, id_from uuid default null, id_before uuid default null, page_size integer default 20,
    look_at integer default 100000
)
    returns table (message_id uuid, look_on uuid) language plpgsql stable security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_custom_plan set jit = off
as $$
#variable_conflict use_column
declare
    v_ends    constant text := '%' || lower(replace($1, '-', ''));
    v_from    constant uuid := coalesce($2, '00000000-0000-0000-0000-000000000000');
    v_before  constant uuid := coalesce($3, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
begin
    perform refuse_unless(v_ends ~ '^%[0-9a-f]{4,32}$', 'id_tail must be 4 to 32 hexadecimal digits');
    perform refuse_unless($4 between 1 and 10000, 'page_size must be between 1 and 10000');
    perform refuse_unless($5 between 1 and 1000000, 'look_at must be between 1 and 1000000');
    return query
    with history as materialized (
        select m.id from message m where m.id >= v_from and m.id < v_before order by m.id desc limit $5
    ), found as (
        select d.message_id as id from delivery d
        where replace(d.message_id::text, '-', '') like v_ends and d.message_id >= v_from and d.message_id < v_before
        union
        select l.message_id from dead_letter l
        where replace(l.message_id::text, '-', '') like v_ends and l.message_id >= v_from and l.message_id < v_before
        union
        select h.id from history h where replace(h.id::text, '-', '') like v_ends
        order by 1 desc
        limit $4
    )
    select f.id, null::uuid from found f
    union all
    select null, (select h.id from history h order by h.id limit 1)
    where (select count(*) from history) = $5
    order by 1 desc nulls last;
end
$$;
comment on function :"schema".find_ids is
    'Messages whose id ends with these digits: all that is undelivered or dead, and a bounded number of others.';
grant execute on function :"schema".find_ids to :"reader", :"operator", :"auditor";
