-- The tables of the two modules, and the sink of each. Applied by `run` and by the tests, after `postrider migrate up`. The
-- outbox knows nothing of the tables; they share transactions.

create schema chat;
create table chat.turn (
    tenant_id    uuid        not null,
    turn_id      uuid        not null,
    request_id   uuid        not null,
    tokens       bigint      not null check (tokens > 0),
    finished_at  timestamptz not null default now(),
    primary key (tenant_id, turn_id, request_id)
);
create table chat.closed_tenant (
    tenant_id  uuid primary key
);

create schema billing;
create table billing.usage (
    tenant_id   uuid   not null,
    turn_id     uuid   not null,
    request_id  uuid   not null,
    tokens      bigint not null,
    primary key (tenant_id, turn_id, request_id)
);
create table billing.account (
    tenant_id  uuid   primary key,
    spent      bigint not null default 0,
    quota      bigint not null default 10000
);

-- Each module's namespace goes to the sink of the same name. The relay adds these routes, too; but turns may be finished before
-- the first relay has started.
do $$
begin
    perform outbox.add_route('chat', namespace => 'chat');
    perform outbox.add_route('billing', namespace => 'billing');
end
$$;
