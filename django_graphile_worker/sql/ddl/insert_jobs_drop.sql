drop function if exists :SCHEMA._private_forget_unique_jobs(integer, timestamptz);
drop function if exists :SCHEMA._private_keyed_adder_add_unique_jobs(json, boolean, timestamptz);
drop function if exists :SCHEMA._private_add_unique_jobs(json, boolean, timestamptz);
drop table if exists :SCHEMA._private_unique_jobs;
drop procedure if exists :SCHEMA._private_insert_job_and_notify_v1(text, json, bigint, timestamptz);
drop function if exists :SCHEMA._private_insert_job_v1(text, json, boolean);
drop function if exists :SCHEMA._private_insert_job_with_options_v1(
  text, json, text, timestamptz, integer, integer, text[], boolean
);
drop function if exists :SCHEMA._private_insert_jobs_v1(
  text[], text, integer[], text[], integer[], text, text, integer[], integer[], text, boolean, boolean
);
