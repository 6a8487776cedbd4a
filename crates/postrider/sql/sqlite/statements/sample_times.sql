-- When the last sample that is not from the future ended, and how often, how late and how far back samples are taken, in microseconds.
-- Caller: measure. Index: sample_pk.
select (select max(m.at) from outbox_sample m where m.at <= :now) as last_at,
       cast(s.sample_every_seconds * 1000000 as integer) as every_us,
       cast(s.sample_lag_seconds * 1000000 as integer) as lag_us,
       cast(s.sample_reach_seconds * 1000000 as integer) as reach_us
from outbox_setting s
