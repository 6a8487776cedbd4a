-- How many there are: what a redrive or a discard would take.
select count(*) from matching
