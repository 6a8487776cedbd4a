-- A sink that is configured gets a row, with the defaults. Zero rows: it has one.
insert into outbox_sink (name) values (:sink) on conflict do nothing
