-- What operators did, and dead letters that can be chosen by what they are about.
-- Applied once, by whoever opens the file first; frozen once released.

-- One action of an operator, written in the transaction that carried it out. Append-only, and never pruned: people act
-- by hand, and whoever asks about one asks late. Numbers are not given out again.
create table outbox_audit (
    id        integer not null primary key autoincrement,
    at        integer not null,
    affected  integer not null,
    actor     text    not null,
    action    text    not null,
    detail    text    not null,
    constraint audit_affected_is_not_negative check (affected >= 0),
    constraint audit_actor_is_short_text check (actor <> '' and length(cast(actor as blob)) <= 255),
    constraint audit_action_is_short_text check (action <> '' and length(cast(action as blob)) <= 255),
    constraint audit_detail_is_object check (json_valid(detail) and json_type(detail) = 'object')
) strict;

-- An insert is looked at, too: INSERT OR REPLACE would take the old row away without asking the other triggers.
create trigger outbox_audit_is_append_only before update on outbox_audit
begin
    select raise(abort, 'UPDATE on outbox_audit is refused: its rows are written once');
end;
create trigger outbox_audit_is_not_deleted before delete on outbox_audit
begin
    select raise(abort, 'DELETE on outbox_audit is refused: its rows are written once');
end;
create trigger outbox_audit_is_not_replaced before insert on outbox_audit
when exists (select 1 from outbox_audit a where a.id = new.id)
begin
    select raise(abort, 'an entry with this number is there: the audit is written once');
end;

-- A dead letter says itself what it is about, so that to count, group or choose them reads no message.
alter table outbox_dead_letter add column namespace text not null default '';
alter table outbox_dead_letter add column topic text not null default '';
update outbox_dead_letter
set namespace = coalesce((select m.namespace from outbox_message m where m.id = outbox_dead_letter.message_id), ''),
    topic = coalesce((select m.topic from outbox_message m where m.id = outbox_dead_letter.message_id), '');

-- Newest first is how they are read; oldest first, backwards, is how they are redriven.
create index outbox_dead_letter_by_time on outbox_dead_letter (died_at desc, message_id desc, sink);
