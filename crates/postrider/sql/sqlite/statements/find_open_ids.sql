-- Messages with something left to deliver, or dead, whose id ends with these digits. Caller: list. Reads the hot table and
-- the dead letters once, as the status does.
select d.message_id from outbox_delivery d
where hex(d.message_id) like :ends and d.message_id >= :id_from and d.message_id < :id_before
union
select l.message_id from outbox_dead_letter l
where hex(l.message_id) like :ends and l.message_id >= :id_from and l.message_id < :id_before
order by 1 desc
limit :limit
