/* gw:uninstall */
drop index :SCHEMA.history_default_payload_index;
drop index :SCHEMA.history_default_task_index;
drop index :SCHEMA.history_default_job_id_index;
drop index :SCHEMA.history_ended_at_index;
drop table :SCHEMA._private_progress;
