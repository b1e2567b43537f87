drop procedure if exists :SCHEMA._private_insert_job_and_notify_v1(text, json, bigint, timestamptz);
drop function if exists :SCHEMA._private_insert_job_v1(text, json, boolean);
drop function if exists :SCHEMA._private_insert_job_with_options_v1(
  text, json, text, timestamptz, integer, integer, text[], boolean
);
drop function if exists :SCHEMA._private_insert_jobs_v1(
  text[], text, integer[], text[], integer[], text, text, integer[], integer[], text, boolean, boolean
);
