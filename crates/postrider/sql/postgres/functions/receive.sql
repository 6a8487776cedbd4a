-- One event of somebody else's, in the consumer's own transaction. The rules are receive_many's: this is a batch of one.
-- Caller: any consumer, in any language, before it does what the event asks for. Returns true the first time and false
-- again; if the transaction is rolled back, the event was not received. Errors: 22023 for wrong input.
create or replace function :"schema".receive(
    event_id     uuid,
    tenant_id    text   default null,
    source       text   default '',
    lane         text   default null,
    sequence_id  bigint default null
)
    returns boolean language sql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select r.first
    from receive_many(
        event_id => array[event_id], tenant_id => array[tenant_id], source => array[source], lane => array[lane],
        sequence_id => array[sequence_id]
    ) r
$$;
comment on function :"schema".receive is
    'Notes in this transaction that an event was received: true the first time, false again.';
grant execute on function :"schema".receive to :"receiver";
