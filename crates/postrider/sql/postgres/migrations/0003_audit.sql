-- What operators did, and dead letters that can be chosen by what they are about.
-- Applied once by `postrider migrate up`; frozen once released. Each function that changes something for an operator writes
-- its own entry with ../functions/write_audit.sql.

-- One action of an operator, written in the transaction that carried it out. Append-only, and never pruned: people act
-- by hand, and whoever asks about one asks late.
create table :"schema".audit (
    id        bigint      not null generated always as identity,
    at        timestamptz not null,
    affected  bigint      not null,
    actor     text collate "C" not null,
    db_user   text collate "C" not null,
    action    text collate "C" not null,
    detail    jsonb       not null,
    constraint audit_pk primary key (id),
    constraint audit_affected_is_not_negative check (affected >= 0),
    constraint audit_actor_is_short_text check (actor <> '' and octet_length(actor) <= 255),
    constraint audit_action_is_short_text check (action <> '' and octet_length(action) <= 255),
    constraint audit_detail_is_object check (jsonb_typeof(detail) = 'object')
);
comment on table :"schema".audit is 'What operators did, who, when, and how much it changed. Rows can be added, never changed.';
comment on column :"schema".audit.actor is 'Who, as the caller says; the login if nobody was named.';
comment on column :"schema".audit.db_user is 'The login (session_user) that did it: what the server knows.';

create trigger audit_is_append_only before update or delete on :"schema".audit
    for each row execute function :"schema".refuse_change();
create trigger audit_is_not_truncated before truncate on :"schema".audit
    for each statement execute function :"schema".refuse_truncate();

-- A dead letter says itself what it is about: to count, group or choose a hundred thousand of them without this reads
-- as many messages, each in its partition.
alter table :"schema".dead_letter
    add column namespace   text collate "C" not null default '',
    add column topic       text collate "C" not null default '',
    add column occurred_at timestamptz not null default '-infinity';
update :"schema".dead_letter l set namespace = m.namespace, topic = m.topic, occurred_at = m.occurred_at
from :"schema".message m where m.id = l.message_id;

-- A trigger, so that what buries a delivery (and is on the path of every outcome) need not read the message.
create function :"schema".label_dead_letter() returns trigger
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
as $$
begin
    select m.namespace, m.topic, m.occurred_at into new.namespace, new.topic, new.occurred_at
    from message m where m.id = new.message_id;
    new.namespace := coalesce(new.namespace, '');
    new.topic := coalesce(new.topic, '');
    new.occurred_at := coalesce(new.occurred_at, new.died_at);
    return new;
end
$$;
comment on function :"schema".label_dead_letter() is 'Trigger: a dead letter gets the namespace, topic and time of its message.';
create trigger dead_letter_is_labelled before insert on :"schema".dead_letter
    for each row execute function :"schema".label_dead_letter();

-- Newest first is how they are read; oldest first, backwards, is how they are redriven. The predicate holds for every row: a
-- statement that wants these indexes says it, and one that looks a letter up by its id does not, so that no plan walks
-- through them for an id (see docs/decisions/0011). With `<>` the planner takes it for nearly all rows, which is right.
drop index :"schema".dead_letter_by_time;
create index dead_letter_by_time on :"schema".dead_letter (died_at desc, message_id desc, sink)
    where num_nulls(died_at) <> 1;
create index dead_letter_of_sink on :"schema".dead_letter (sink, died_at desc, message_id desc)
    where num_nulls(died_at) <> 1;
