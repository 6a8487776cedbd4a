-- The application's own table, for the programs of every language.
create table if not exists orders (id bigint primary key, customer text not null);
