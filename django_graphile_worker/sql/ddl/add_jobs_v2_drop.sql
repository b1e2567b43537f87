/* gw:uninstall */
drop function if exists :SCHEMA._private_keyed_adder_add_jobs(:SCHEMA.job_spec[], boolean);
drop function if exists :SCHEMA._private_adder_add_jobs(:SCHEMA.job_spec[]);
drop function if exists :SCHEMA._private_put_jobs_once(:SCHEMA.job_spec[], bigint[], text[], boolean, jsonb, jsonb, boolean);
