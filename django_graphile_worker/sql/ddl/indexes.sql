/* gw:install */
-- Led by the task, so that tasks nobody here knows cost nothing; then the order of the claim, so that future jobs lie
-- beyond the end of the range.
create index jobs_plain_index on :SCHEMA._private_jobs (task_id, priority, run_at, id)
    where is_available and job_queue_id is null;

-- Jobs in queues twice: by due time, to find the queues whose turn it is, and by queue, to run a stretch of one or to
-- step over those that are held. Statements that look by due time say "job_queue_id > 0", so that no other uses this one.
create index jobs_queued_index on :SCHEMA._private_jobs (task_id, priority, run_at, id) include (job_queue_id)
    where is_available and job_queue_id > 0;
create index jobs_in_queue_index on :SCHEMA._private_jobs (job_queue_id, task_id, priority, run_at, id)
    where is_available and job_queue_id is not null;

-- The rows in hand, oldest first: for the sweep and the admin. Led by the time,
-- because all rows of one claim share it and the index stays small and cheap.
create index jobs_locked_index on :SCHEMA._private_jobs (locked_at)
    where locked_at is not null;
create index job_queues_locked_index on :SCHEMA._private_job_queues (locked_at)
    where locked_at is not null;

create index jobs_retried_index on :SCHEMA._private_jobs (task_id, is_available, run_at, id)
  where locked_at is null and attempts > 0;

-- When a job was changed last is when it failed, as long as nobody edits it after that.
create index jobs_failed_index on :SCHEMA._private_jobs (task_id, updated_at, id)
  where locked_at is null and attempts > 0 and not is_available;
create index jobs_failed_in_queue_index on :SCHEMA._private_jobs (job_queue_id, updated_at, id)
  where locked_at is null and attempts > 0 and not is_available and job_queue_id is not null;
create index jobs_errors_index on :SCHEMA._private_jobs (
  task_id, is_available, :SCHEMA._private_error_name(last_error), updated_at, id)
  where locked_at is null and attempts > 0;
