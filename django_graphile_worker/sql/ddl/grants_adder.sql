grant usage on schema :SCHEMA to :ROLE;

-- add_job and add_jobs call these functions, which run with the rights of their owner and add the job. The role itself
-- gets no right to any table.
grant execute on function :SCHEMA._private_adder_add_job(text, json, text, timestamptz, integer, integer, text[]) to :ROLE;
grant execute on function :SCHEMA._private_adder_add_jobs(:SCHEMA.job_spec[]) to :ROLE;

-- The client of graphile-worker for Node.js reads its table of migrations before it adds a job.
grant select on :SCHEMA.migrations to :ROLE;

-- Revokes what this recipe granted in earlier versions: it let the role read some rows.
do $$
declare
  has_other_rights boolean := exists (
    select from pg_catalog.pg_policy as policy
    where policy.polrelid = ':SCHEMA._private_jobs'::pg_catalog.regclass
      and policy.polname in (:'POLICY(works)', :'POLICY(views)')
  );
begin
  drop policy if exists :POLICY(reads) on :SCHEMA._private_tasks;
  drop policy if exists :POLICY(adds) on :SCHEMA._private_tasks;
  drop policy if exists :POLICY(reads) on :SCHEMA._private_job_queues;
  drop policy if exists :POLICY(adds) on :SCHEMA._private_job_queues;
  drop policy if exists :POLICY(adds) on :SCHEMA._private_jobs;
  drop policy if exists :POLICY(reads_its_own) on :SCHEMA._private_jobs;
  drop policy if exists :POLICY(replaces) on :SCHEMA._private_jobs;
  drop policy if exists :POLICY(reads_keys) on :SCHEMA._private_jobs;
  if not has_other_rights then
    revoke all on :SCHEMA._private_tasks, :SCHEMA._private_job_queues, :SCHEMA._private_jobs,
      :SCHEMA._private_cancellations, :SCHEMA._private_job_recoveries from :ROLE;
    revoke all on sequence :SCHEMA.jobs_id_seq1 from :ROLE;
  end if;
end
$$;
