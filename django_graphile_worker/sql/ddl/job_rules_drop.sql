/* gw:uninstall */
drop function :SCHEMA._private_put_jobs(:SCHEMA.job_spec[], bigint[], text[], boolean, jsonb, jsonb);
drop function :SCHEMA._private_fold_specs(:SCHEMA.job_spec[], boolean);
drop function :SCHEMA._private_job_queue_ids(text[]);
drop function :SCHEMA._private_task_ids(text[]);
drop function :SCHEMA._private_hold_names();
drop function :SCHEMA._private_is_due(timestamptz);
drop function if exists :SCHEMA._private_true_run_at(bigint, timestamptz);
drop function :SCHEMA._private_notify(bigint);
drop function :SCHEMA._private_merged_payload(json, json);
drop function :SCHEMA._private_refuse_job(text, text, text, timestamptz, integer, text, integer, text);
drop function :SCHEMA._private_job_fault(text, text, timestamptz, integer, text, integer, text);
