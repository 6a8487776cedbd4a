-- The service's own tables: contacts, and the identities that lead to them. Applied by `run` and by the tests, after
-- `postrider migrate up`. The outbox knows nothing of these tables; they share transactions with it, and nothing else.

create table contacts (
    tenant_id   uuid        not null,
    contact_id  uuid        not null default gen_random_uuid(),
    created_at  timestamptz not null default now(),
    primary key (tenant_id, contact_id)
);

create table contact_identities (
    tenant_id   uuid        not null,
    contact_id  uuid        not null,
    type        text        not null check (type in ('email', 'external_id')),
    value       text        not null check (octet_length(value) between 1 and 320),
    created_at  timestamptz not null default now(),
    foreign key (tenant_id, contact_id) references contacts
);

-- An external id is unique for each tenant and type; an email address for each tenant, whatever its case.
create unique index uniq_identity_external on contact_identities (tenant_id, type, value)
    where type = 'external_id';
create unique index uniq_identity_email_lower on contact_identities (tenant_id, type, lower(value))
    where type = 'email';
