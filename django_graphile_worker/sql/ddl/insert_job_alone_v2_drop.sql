/* gw:uninstall */
drop procedure if exists :SCHEMA._private_insert_job_and_notify_v3(text, json, bigint, timestamptz, boolean);
drop function if exists :SCHEMA._private_notify_together_v2();
