-- The service's own table, what a client asked for, and the rails in the outbox. Applied by `run` and by the tests, after `postrider migrate up` and
-- `postrider migrate roles`. The outbox knows nothing of the table; they share transactions.

create table instructions (
    instruction_id   text        not null,
    idempotency_key  text        not null,
    participant_id   text        not null,
    rail             text        not null,
    payment          jsonb       not null,
    accepted_at      timestamptz not null default now(),
    primary key (instruction_id, idempotency_key)
);
comment on table instructions is 'What was asked for. The outbox says what became of it: see audit.sql.';

-- An archive, and keys that a late repeat still meets: both are kept for ever, in partitions of a month.
update outbox.setting set retention = null, dedupe_window = null, partition_width = '30 days';

-- A rail is a topic, a route and a sink. A relay adds the routes of its configuration, too; but payments may be accepted before
-- the first relay has started.
do $$
begin
    perform outbox.add_route('instant', topic => 'payment.instant');
    perform outbox.add_route('wire', topic => 'payment.wire');
end
$$;
