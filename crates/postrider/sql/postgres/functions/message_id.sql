-- Message ids are UUIDv7: 48 bits of milliseconds, 12 bits of the fraction below, 62 random bits. A range of ids is a range of time, which is what partitions, retention and replay rest on. Internal.

-- The lowest id a message written at this time can have: the boundary of a partition.
create or replace function :"schema".message_id_floor(written_at timestamptz)
    returns uuid language sql immutable parallel safe
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select (lpad(to_hex((t.micros / 1000) << 16), 16, '0') || '0000000000000000')::uuid
    -- Times before 1970 or after the year 6429 have no UUIDv7: the first and the last stand for them.
    from (select least(greatest(date_part('epoch', written_at) * 1e6, 0), 140737488355327000)::bigint as micros) t
$$;
comment on function :"schema".message_id_floor is 'The lowest id of a message written at or after this time.';

-- When a message was written, read from its id (to the microsecond, give or take one).
create or replace function :"schema".message_id_time(message_id uuid)
    returns timestamptz language sql immutable parallel safe
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select to_timestamp(0)
        + (b.head >> 16) * interval '1 millisecond'
        + ((b.head & 4095) * 1000 + 4095) / 4096 * interval '1 microsecond'
    from (select ('x' || substr(replace(message_id::text, '-', ''), 1, 16))::bit(64)::bigint as head) b
$$;
comment on function :"schema".message_id_time is 'When the message with this id was written.';
grant execute on function :"schema".message_id_time to :"reader", :"operator", :"auditor";

-- The id of a message that is written at this microsecond since 1970. The first eight bytes are one bigint (milliseconds << 16 |
-- version << 12 | fraction of the millisecond), the last eight are a random UUID's; a batch makes its own from one.
-- Without a SET clause, as in message_rules.sql. Typed constants and `substr` keep the lookups of a session's first call few.
create or replace function :"schema".new_message_id(
    micros bigint, tail bytea default substr(uuid_send(gen_random_uuid()), 9)
)
    returns uuid language sql volatile parallel safe
begin atomic
    select encode(int8send(((micros / 1000) << 16) | bigint '28672' | ((micros % 1000) * 4096 / 1000))
                  || tail, 'hex')::uuid;
end;
comment on function :"schema".new_message_id is 'Internal: a new UUIDv7.';
