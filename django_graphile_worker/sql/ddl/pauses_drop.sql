/* gw:uninstall */
-- Without this table nothing would free a paused queue.
select :SCHEMA._private_resume_v1(pause.kind, pause.name) from :SCHEMA._private_pauses as pause;
drop function :SCHEMA._private_settle_pauses_v1(timestamptz);
drop function :SCHEMA._private_resume_v1(text, text);
drop function :SCHEMA._private_end_pause_v1(:SCHEMA._private_pauses);
drop function :SCHEMA._private_notify_control_v1();
drop function :SCHEMA._private_lock_paused_queue_v1(text, text);
drop function :SCHEMA._private_pause_v1(text, text, timestamptz, text, text, boolean, timestamptz);
drop table :SCHEMA._private_pauses;
