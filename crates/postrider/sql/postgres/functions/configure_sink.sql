-- What an operator sets about sinks and routes. A sink needs no row to exist: a row holds what is not the default.
-- Routes concern new messages only: a delivery keeps the sink it was written for, until somebody calls apply_routes.
-- A change is audited, and a call that names an actor in any case (see write_audit). A relay pauses its own sink when the
-- destination says "no more", and adds the routes of its configuration if they are missing.

create or replace function :"schema".remove_route(
    sink text, topic text default '*', namespace text default '*', actor text default null
)
    returns boolean language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
begin
    delete from route r
    where r.sink = remove_route.sink and r.topic = remove_route.topic and r.namespace = remove_route.namespace;
    return write_audit(remove_route.actor, 'remove_route', jsonb_build_object(
        'sink', remove_route.sink, 'topic', remove_route.topic, 'namespace', remove_route.namespace), found::integer) > 0;
end
$$;
comment on function :"schema".remove_route is 'Removes a route; false if there was none.';
grant execute on function :"schema".remove_route to :"operator";

create or replace function :"schema".configure_sink(
    sink text, paused boolean default null, on_dead text default null, actor text default null
)
    returns boolean language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_changed boolean;
begin
    perform refuse_unless(octet_length(configure_sink.sink) between 1 and 255, 'sink must be 1 to 255 bytes of text');
    perform refuse_unless(coalesce(configure_sink.on_dead in ('park', 'skip'), true), 'on_dead must be park or skip');
    insert into sink (name) values (configure_sink.sink) on conflict (name) do nothing;
    update sink s
    set paused = coalesce(configure_sink.paused, s.paused), on_dead = coalesce(configure_sink.on_dead, s.on_dead)
    where s.name = configure_sink.sink
      and (s.paused <> configure_sink.paused or s.on_dead <> configure_sink.on_dead);
    v_changed := found;
    if configure_sink.paused is false then
        perform notify_sleepers();
    end if;
    if configure_sink.on_dead is null and configure_sink.paused is not null then
        return write_audit(configure_sink.actor, case when configure_sink.paused then 'pause' else 'resume' end,
                           jsonb_build_object('sink', configure_sink.sink), v_changed::integer) > 0;
    end if;
    return write_audit(configure_sink.actor, 'configure_sink', jsonb_build_object(
        'sink', configure_sink.sink, 'paused', configure_sink.paused, 'on_dead', configure_sink.on_dead),
        v_changed::integer) > 0;
end
$$;
comment on function :"schema".configure_sink is
    'Pauses or resumes a sink; sets whether a dead lane head parks its lane or is skipped. False: it was so already.';
grant execute on function :"schema".configure_sink to :"relay", :"operator";

create or replace function :"schema".add_route(
    sink text, topic text default '*', namespace text default '*', actor text default null
)
    returns boolean language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
begin
    perform refuse_unless(
        octet_length(add_route.sink) between 1 and 255 and octet_length(add_route.topic) between 1 and 255
        and octet_length(add_route.namespace) between 1 and 255,
        'sink, topic and namespace must each be 1 to 255 bytes of text');
    insert into route (namespace, topic, sink) values (add_route.namespace, add_route.topic, add_route.sink)
    on conflict do nothing;
    return write_audit(add_route.actor, 'add_route', jsonb_build_object(
        'sink', add_route.sink, 'topic', add_route.topic, 'namespace', add_route.namespace), found::integer) > 0;
end
$$;
comment on function :"schema".add_route is
    'Sends new messages of a topic (* stands for any characters) to a sink; false if the route was there.';
grant execute on function :"schema".add_route to :"relay", :"operator";
