grant usage on schema :SCHEMA to :ROLE;

-- Names of tasks and queues: looked up, and made when they are new. The column
-- id is needed only by transactions above READ COMMITTED.
grant select, insert (id, identifier) on :SCHEMA._private_tasks to :ROLE;
grant select, insert (id, queue_name) on :SCHEMA._private_job_queues to :ROLE;
drop policy if exists :POLICY(reads) on :SCHEMA._private_tasks;
create policy :POLICY(reads) on :SCHEMA._private_tasks for select to :ROLE using (true);
drop policy if exists :POLICY(adds) on :SCHEMA._private_tasks;
create policy :POLICY(adds) on :SCHEMA._private_tasks for insert to :ROLE with check (true);
drop policy if exists :POLICY(reads) on :SCHEMA._private_job_queues;
create policy :POLICY(reads) on :SCHEMA._private_job_queues for select to :ROLE using (true);
drop policy if exists :POLICY(adds) on :SCHEMA._private_job_queues;
create policy :POLICY(adds) on :SCHEMA._private_job_queues for insert to :ROLE with check (true);

-- Jobs: the columns that add_job sets. add_job returns the row it made, so a row
-- must be visible to the transaction that made it, and to no other.
grant select, insert (job_queue_id, task_id, payload, priority, run_at, max_attempts, flags)
  on :SCHEMA._private_jobs to :ROLE;
drop policy if exists :POLICY(adds) on :SCHEMA._private_jobs;
create policy :POLICY(adds) on :SCHEMA._private_jobs for insert to :ROLE with check (true);
drop policy if exists :POLICY(reads_its_own) on :SCHEMA._private_jobs;
create policy :POLICY(reads_its_own) on :SCHEMA._private_jobs for select to :ROLE
  using (created_at = now());
