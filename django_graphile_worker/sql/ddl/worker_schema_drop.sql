/* gw:uninstall */
-- No cascade: what somebody built upon these objects is for them to drop.

drop function :SCHEMA.add_job(text, json, text, timestamptz, integer, text, integer, text[], text);
drop function :SCHEMA.add_jobs(:SCHEMA.job_spec[], boolean);
drop function :SCHEMA.remove_job(text);
drop function :SCHEMA.complete_jobs(bigint[]);
drop function :SCHEMA.permanently_fail_jobs(bigint[], text);
drop function :SCHEMA.reschedule_jobs(bigint[], timestamptz, integer, integer, integer);
drop function :SCHEMA.force_unlock_workers(text[]);
drop view :SCHEMA.jobs;
drop type :SCHEMA.job_spec;
-- Marks of graphile_worker for Rust on these jobs: its migration 22 may have made the table since.
drop table if exists :SCHEMA._private_job_retirements;
drop table :SCHEMA._private_jobs;
drop table :SCHEMA._private_job_queues;
drop table :SCHEMA._private_tasks;
drop table :SCHEMA._private_known_crontabs;
drop table :SCHEMA.migrations;
