-- How many spans a lane may remember.
select inbox_lane_spans from outbox_setting
