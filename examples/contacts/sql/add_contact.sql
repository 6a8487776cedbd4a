-- A contact without identities yet. $1 tenant.
insert into contacts (tenant_id) values ($1) returning contact_id
