-- Makes pending deliveries whose time has not come due at once, those that are due next first, at most `at_most` of them:
-- whoever wants all calls again until it returns 0. Null: of any message, of any sink. What is leased and dead lane heads
-- that park their lane are left alone.
-- Caller: an operator, when a destination is back early or the database's clock was wrong. Transition: pending -> pending,
--   due now. A lane keeps its order: it goes by its lowest number, whatever is due behind that.
-- Locks: the deliveries, FOR UPDATE SKIP LOCKED: nobody is waited for. Index: delivery_pk for named messages, none without:
--   it reads the hot table once. Zero: nothing waits for its time.
create or replace function :"schema".retry_now(
    message_ids  uuid[]  default null,
    sink         text    default null,
    at_most      integer default 1000
)
    returns integer
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_now    constant timestamptz := clock_timestamp();
    v_count  integer;
begin
    if retry_now.at_most is null or retry_now.at_most not between 1 and 10000 then
        raise exception 'at_most must be between 1 and 10000' using errcode = '22023';
    end if;
    with waiting as materialized (
        select d.message_id, d.sink from delivery d
        where d.due_at > v_now and d.due_at < 'infinity' and d.lease_token is null
          and (retry_now.message_ids is null or d.message_id = any (retry_now.message_ids))
          and (retry_now.sink is null or d.sink = retry_now.sink)
        order by d.due_at, d.message_id, d.sink
        limit retry_now.at_most
        for update skip locked
    )
    update delivery d set due_at = v_now
    from waiting w
    where d.message_id = w.message_id and d.sink = w.sink;
    get diagnostics v_count = row_count;
    if v_count > 0 then
        perform notify_sleepers();
    end if;
    return v_count;
end
$$;
comment on function :"schema".retry_now(uuid[], text, integer) is
    'Makes pending deliveries that wait for their time due at once; returns how many.';
