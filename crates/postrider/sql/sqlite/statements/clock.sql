-- The clock, read once a transaction: what this transaction calls now.
select now from outbox_clock
