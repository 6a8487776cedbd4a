-- Smoke tests of the outbox and of the identities, over the names of names.sql: order, overlap, token, uniqueness. Run by
-- `run` and by the tests: psql -X -v ON_ERROR_STOP=1 -f smoke.sql. The first check that fails raises an error. Everything
-- is for one tenant of its own and is rolled back, so it may be run beside a service that is in use.
\set QUIET on
begin;
set local client_min_messages = notice;

-- One tenant: with two, no identity could collide, and claims of the service's own messages would mix with these.
create temporary table smoke on commit drop as
select gen_random_uuid() as tenant, gen_random_uuid() as token_a, gen_random_uuid() as token_b;

-- 1. The oldest first.
do $$
declare
    v_order text;
begin
    insert into outbox (topic, payload, tenant_id, created_at)
    select 'test', jsonb_build_object('seq', s.seq), smoke.tenant, now() - s.age
    from smoke, (values (3, interval '1 hour'), (1, interval '3 hours'), (2, interval '2 hours')) as s (seq, age);
    select string_agg(c.payload ->> 'seq', ',' order by c.nth) into v_order
    from smoke, app.outbox_claim(10, smoke.token_a, smoke.tenant) with ordinality
         as c (id, topic, payload, tenant_id, created_at, delivered_at, attempts, processing_token, nth);
    if v_order is distinct from '1,2,3' then
        raise exception 'claimed in the order %, not 1,2,3', v_order;
    end if;
    raise notice 'ok: a claim takes the oldest first';
end
$$;

-- 2. Two claims have nothing in common.
do $$
declare
    v_first   uuid[];
    v_second  uuid[];
begin
    insert into outbox (topic, payload, tenant_id)
    select 'test', jsonb_build_object('n', n), smoke.tenant from smoke, generate_series(1, 10) n;
    select array_agg(c.id) into v_first from smoke, app.outbox_claim(5, gen_random_uuid(), smoke.tenant) c;
    select array_agg(c.id) into v_second from smoke, app.outbox_claim(5, gen_random_uuid(), smoke.tenant) c;
    if cardinality(v_first) is distinct from 5 or cardinality(v_second) is distinct from 5 then
        raise exception 'claims of 5 took % and %', cardinality(v_first), cardinality(v_second);
    elsif v_first && v_second then
        raise exception 'two claims overlap: % and %', v_first, v_second;
    end if;
    raise notice 'ok: two claims never overlap';
end
$$;

-- 3. Only the token of the claim finishes it, and each row counts once.
do $$
declare
    v_ids     uuid[];
    v_counts  integer[];
begin
    select array(select o.id from outbox o, smoke where o.processing_token = smoke.token_a) into v_ids;
    select array[app.outbox_mark_delivered(smoke.token_b, v_ids)] into v_counts from smoke;
    v_counts := v_counts || (select app.outbox_mark_delivered(smoke.token_a, v_ids) from smoke);
    v_counts := v_counts || (select app.outbox_mark_delivered(smoke.token_a, v_ids) from smoke);
    if v_counts is distinct from array[0, 3, 0] then
        raise exception 'another token, the token, the token again: % rows instead of {0,3,0}', v_counts;
    end if;
    if (select count(*) from outbox o where o.id = any (v_ids) and o.delivered_at is not null and o.attempts = 1
        and o.processing_token is null) <> 3 then
        raise exception 'what was marked delivered is not delivered';
    end if;
    raise notice 'ok: a claim is finished with its own token only';
end
$$;

-- 4. An identity is unique in its tenant; another tenant may have the same.
do $$
declare
    v_case     record;
    v_tenant   uuid := (select tenant from smoke);
    v_contact  uuid;
    v_refused  boolean;
begin
    insert into contacts (tenant_id) values (v_tenant) returning contact_id into v_contact;
    insert into contact_identities (tenant_id, contact_id, type, value) values
        (v_tenant, v_contact, 'external_id', 'acct_123'), (v_tenant, v_contact, 'email', 'Alice@Example.com');
    for v_case in values ('external_id', 'acct_123', true), ('external_id', 'ACCT_123', false),
                         ('email', 'alice@example.com', true), ('email', 'ALICE@EXAMPLE.COM', true),
                         ('email', 'acct_123', false)
    loop
        v_refused := false;
        begin
            insert into contact_identities (tenant_id, contact_id, type, value)
            values (v_tenant, v_contact, v_case.column1, v_case.column2);
        exception when unique_violation then
            v_refused := true;
        end;
        if v_refused <> v_case.column3 then
            raise exception '% %: refused is %', v_case.column1, v_case.column2, v_refused;
        end if;
    end loop;
    v_tenant := gen_random_uuid();
    insert into contacts (tenant_id) values (v_tenant) returning contact_id into v_contact;
    insert into contact_identities (tenant_id, contact_id, type, value) values
        (v_tenant, v_contact, 'external_id', 'acct_123'), (v_tenant, v_contact, 'email', 'alice@example.com');
    raise notice 'ok: an identity is unique in its tenant';
end
$$;

rollback;
