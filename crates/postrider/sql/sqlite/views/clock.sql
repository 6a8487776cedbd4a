-- The one clock of the outbox: microseconds since 1970, counted in milliseconds. It stands still during a statement.
create view outbox_clock as
select cast(round(unixepoch('subsec') * 1000) as integer) * 1000 as now;
