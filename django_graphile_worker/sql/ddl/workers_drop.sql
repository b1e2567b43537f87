drop index if exists :SCHEMA.jobs_unqueued_index, :SCHEMA.jobs_flagged_index, :SCHEMA.jobs_flag_sets_index,
    :SCHEMA.jobs_queued_index, :SCHEMA.jobs_by_queue_index, :SCHEMA.jobs_locked_index,
    :SCHEMA.job_queues_locked_index;
drop table if exists :SCHEMA._private_job_recoveries, :SCHEMA._private_workers;
