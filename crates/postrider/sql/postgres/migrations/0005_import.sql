-- Where imported messages came from: the tables of other designs, their lanes and their rows.
-- Applied once by `postrider migrate up`; frozen once released. The rules are in ../functions/import_rules.sql and
-- ../functions/import.sql.

-- A table that is imported, or a query over several. Its name never changes: whoever imports again goes on.
create table :"schema".import_source (
    id              integer     not null generated always as identity,
    begun_at        timestamptz not null,
    name            text collate "C" not null,
    key_expression  text        not null,
    constraint import_source_pk primary key (id),
    constraint import_source_name_is_unique unique (name),
    constraint import_source_name_is_short_text check (name <> '' and octet_length(name) <= 255)
);
comment on table :"schema".import_source is 'Tables of other designs that are imported.';
comment on column :"schema".import_source.key_expression is
    'What tells rows of the source apart. With another one, a row could be imported twice.';

-- The numbers of a lane that belong to a source: those after after_sequence, up to last_sequence. Other numbers of the lane
-- were given out by this outbox.
create table :"schema".import_lane (
    source_id       integer not null,
    after_sequence  bigint  not null,
    last_sequence   bigint  not null,
    lane            text collate "C" not null,
    constraint import_lane_pk primary key (source_id, lane),
    constraint import_lane_is_a_range check (after_sequence <= last_sequence)
);
comment on table :"schema".import_lane is 'Which numbers of a lane belong to an imported table.';

-- One row of a source, and what became of it. It is written in the transaction that writes the message, so a source row is
-- imported once, however often and by however many it is tried.
create table :"schema".imported (
    source_id    integer     not null,
    imported_at  timestamptz not null,
    message_id   uuid,
    sequence_id  bigint,
    source_key   text collate "C" not null,
    outcome      text collate "C" not null,
    lane         text collate "C",
    reason       text,
    constraint imported_pk primary key (source_id, source_key),
    constraint imported_outcome_is_known check (outcome in ('pending', 'dead', 'delivered', 'duplicate', 'refused')),
    constraint imported_names_its_message check ((message_id is null) = (outcome = 'refused')),
    constraint imported_says_why_not check ((reason is null) = (outcome <> 'refused'))
);
-- Lane numbers that the source gave: no two of its rows have the same.
create unique index imported_lane on :"schema".imported (source_id, lane, sequence_id) where sequence_id is not null;
comment on table :"schema".imported is 'Rows of imported tables: the message that each became, or why it was refused.';

create trigger imported_is_not_truncated before truncate on :"schema".imported
    for each statement execute function :"schema".refuse_truncate();

-- A source row in the words of the outbox, before it is checked: what a mapping makes of it. Text may be anything.
create type :"schema".import_row as (
    source_key     text,
    state          text,
    id             text,
    namespace      text,
    topic          text,
    tenant_id      text,
    lane           text,
    sequence_id    bigint,
    dedupe_key     text,
    priority       bigint,
    headers        text,
    payload        text,
    body           bytea,
    content_type   text,
    occurred_at    timestamptz,
    due_at         timestamptz,
    attempts       bigint,
    ended_at       timestamptz,
    dead_reason    text,
    error_code     text,
    error_message  text
);
comment on type :"schema".import_row is 'A row of another outbox, in the words of this one.';
