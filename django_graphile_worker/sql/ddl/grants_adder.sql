grant usage on schema :SCHEMA to :ROLE;

-- add_job and add_jobs call these functions, which run with the rights of their owner and add the job. The role itself
-- gets no right to any table.
grant execute on function :SCHEMA._private_adder_add_job(text, json, text, timestamptz, integer, integer, text[]) to :ROLE;
grant execute on function :SCHEMA._private_adder_add_jobs(:SCHEMA.job_spec[]) to :ROLE;

-- The client of graphile-worker for Node.js reads its table of migrations before it adds a job.
grant select on :SCHEMA.migrations to :ROLE;
