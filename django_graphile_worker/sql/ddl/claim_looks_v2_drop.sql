drop function if exists :SCHEMA._private_present_tasks_v2(int[], int4multirange, text);
drop function if exists :SCHEMA._private_within_bytes_v2(tid[], int, bigint);
drop function if exists :SCHEMA._private_walk_queues_v2(int[], int, timestamptz, text[], int, float8, int, int);
drop function if exists :SCHEMA._private_look_at_flagged_v2(
    int[], int, timestamptz, text[], timestamptz, bigint, int);
drop function if exists :SCHEMA._private_look_at_queued_v2(
    int[], int, timestamptz, text[], timestamptz, bigint, int);
drop index if exists :SCHEMA.jobs_queue_periods_index;
