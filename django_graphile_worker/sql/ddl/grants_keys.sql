grant usage on sequence :SCHEMA.jobs_id_seq1 to :ROLE;
grant insert (id, key), update (
    job_queue_id, task_id, payload, priority, run_at, attempts, max_attempts, last_error, updated_at, key, revision, flags
  ) on :SCHEMA._private_jobs to :ROLE;
drop policy if exists :POLICY(replaces) on :SCHEMA._private_jobs;
create policy :POLICY(replaces) on :SCHEMA._private_jobs for update to :ROLE
  using (key is not null) with check (true);

-- The second half is for a job that runs: it loses its key, and that row too must
-- be visible to the transaction that took it.
drop policy if exists :POLICY(reads_keys) on :SCHEMA._private_jobs;
create policy :POLICY(reads_keys) on :SCHEMA._private_jobs for select to :ROLE
  using (key is not null or (attempts = max_attempts and updated_at >= now()));
