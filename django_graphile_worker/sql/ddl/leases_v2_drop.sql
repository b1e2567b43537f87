/* gw:uninstall */
drop function if exists :SCHEMA._private_renew_claims_v2(text, float8, bigint[]);
drop function if exists :SCHEMA._private_forget_ended_v2();
drop function if exists :SCHEMA._private_release_stale_queues_v2(float8, timestamptz);
drop function if exists :SCHEMA._private_release_stale_jobs_v2(float8, timestamptz);
drop function if exists :SCHEMA._private_recover_queues_v2(text[]);
drop function if exists :SCHEMA._private_recover_jobs_v2(text[], int, int, timestamptz);
drop function if exists :SCHEMA._private_orphans_v2(float8, timestamptz, float8, int);
drop function if exists :SCHEMA._private_bury_workers_v2(text[], float8[]);
drop function if exists :SCHEMA._private_late_workers_v2(float8, float8, timestamptz);
alter table :SCHEMA._private_workers
    drop column if exists timeout_seconds,
    drop column if exists heartbeat_seconds;
