-- Gives out the next number of a lane, inside the caller's transaction.
-- Caller: a migration or a producer of another design that keeps its own messages; enqueue allocates in bulk itself.
-- Locks: the lane's row until the transaction ends, so producers of one lane queue up and commit order is sequence
-- order; a rollback takes the number back and leaves no hole. Never granted to the producer role.
create or replace function :"schema".next_sequence(lane text)
    returns bigint language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_sequence bigint;
begin
    perform refuse_unless(octet_length(next_sequence.lane) between 1 and 255, 'lane must be 1 to 255 bytes of text');
    insert into lane_sequence as s (lane, last_sequence)
    values (next_sequence.lane, 1)
    on conflict (lane) do update set last_sequence = s.last_sequence + 1
    returning s.last_sequence into v_sequence;
    return v_sequence;
end
$$;
comment on function :"schema".next_sequence is 'The next gapless number of a lane, allocated in this transaction.';
