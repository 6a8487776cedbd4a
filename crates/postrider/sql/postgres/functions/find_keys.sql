-- Messages that a dedupe key stands for. One key may stand for one message of each namespace, topic and tenant.
-- Caller: Inspect::list, people. Reads only.
--   Hops through dedupe_pk from one pair of namespace and topic to the next, and looks the key up in each: one look if
--   both are given. The tenant is one of a few: a key of a tenant begins with its id and "/". More pairs than `most_topics`
--   are refused, so that the work is bounded.
-- Locks: none. Indexes: dedupe_pk. Zero rows: the key is not known, or its dedupe window is over.
create or replace function :"schema".find_keys(
    dedupe_key text, namespace text default null, topic text default null, most_topics integer default 1000
)
    returns setof uuid language plpgsql stable security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_sort = off set jit = off
as $$
#variable_conflict use_column
declare
    v_pair     record;
    v_hops     integer := 0;
    -- None, what stands before one of the slashes, and the UUID whose 32 digits stand before the first.
    v_tenants  constant text[] := array['', case when $1 ~ '^[0-9a-f]{32}/' then left($1, 32)::uuid::text end]
        || array(select left($1, n - 1) from generate_series(2, 256) n where substr($1, n, 1) = '/');
begin
    perform refuse_unless($1 <> '', 'dedupe_key must not be empty');
    perform refuse_unless($4 between 1 and 100000, 'most_topics must be between 1 and 100000');
    if $2 is not null and $3 is not null then
        return query
        select d.message_id from dedupe d
        where d.namespace = $2 and d.topic = $3 and d.tenant = any(v_tenants) and d.dedupe_key = $1;
        return;
    end if;
    select d.namespace, d.topic into v_pair from dedupe d
    where d.namespace >= coalesce($2, '')
    order by d.namespace, d.topic limit 1;
    while found and ($2 is null or v_pair.namespace = $2) loop
        v_hops := v_hops + 1;
        if v_hops > $4 then
            raise exception 'more than % topics have dedupe keys', $4
                using errcode = '22023', hint = 'Give the namespace and the topic of the key.';
        end if;
        if $3 is null or v_pair.topic = $3 then
            return query
            select d.message_id from dedupe d
            where d.namespace = v_pair.namespace and d.topic = v_pair.topic and d.tenant = any(v_tenants)
              and d.dedupe_key = $1;
        end if;
        select d.namespace, d.topic into v_pair from dedupe d
        where (d.namespace, d.topic) > (v_pair.namespace, v_pair.topic)
        order by d.namespace, d.topic limit 1;
    end loop;
end
$$;
comment on function :"schema".find_keys is 'Messages that a dedupe key stands for, of one topic or of every topic.';
grant execute on function :"schema".find_keys to :"reader", :"operator", :"auditor";
