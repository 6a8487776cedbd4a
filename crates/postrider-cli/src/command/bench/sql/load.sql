-- Enqueues messages of one payload: $1 of them, in $2 lanes (0: in none) whose names begin with $5, due after $4 seconds.
select count(*) from (
    select array_agg('bench'::text) as topic, array_agg($3::text::jsonb) as payload,
           array_agg(case when $2 > 0 then $5 || '-' || n % $2 end) as lane, array_agg($4::numeric) as delay_seconds
    from generate_series(1, $1) n
) m, :"schema".enqueue_many(topic => m.topic, payload => m.payload, lane => m.lane, delay_seconds => m.delay_seconds)
