drop index if exists :SCHEMA.jobs_retried_index, :SCHEMA.jobs_failed_index, :SCHEMA.jobs_errors_index;
drop function if exists :SCHEMA._private_error_name(text);
drop table if exists :SCHEMA._private_statistics;
