-- The outbox's own locks. Each is a lock on an empty table of the outbox, never an advisory lock: whoever may log in can take
-- any advisory lock, and keep it. To lock a table takes the right to write to it, which nobody has but the owner, whose
-- rights the functions use. A table lock writes nothing, needs no transaction id, and ends with the transaction.
--
--   lock_partitions       make_partitions, prune      one at a time; others do nothing
--   lock_measure          measure                     one at a time; others do nothing
--   lock_inbox            prune_inbox                 one at a time; others do nothing
--   lock_inbox_snapshots  receive_many shares it, prune_inbox has it alone
--   lock_lanes_0 to _15   claims share it, who adds to the front of lanes has it alone (see lane_fronts.sql)
--
-- Shared is ROW SHARE and alone is EXCLUSIVE: readers of any kind, `pg_dump` and who only may SELECT disturb neither.

-- Internal: has the lock `name` alone until the transaction ends, if nobody else has it now. Never waits.
create or replace function :"schema".try_lock(name text)
    returns boolean language plpgsql volatile
    set search_path = pg_catalog, :"schema", pg_temp
as $$
begin
    execute format('lock table %I in exclusive mode nowait', 'lock_' || name);
    return true;
exception when lock_not_available then
    return false;
end
$$;
comment on function :"schema".try_lock is 'Internal: true, until the transaction ends, if nobody else has this lock.';
