/* gw:uninstall */
drop table :SCHEMA._private_schedule_changes;
drop table :SCHEMA._private_schedule_runs;
drop table :SCHEMA._private_schedules cascade;
drop function :SCHEMA._private_notify_schedules_v1();
drop function :SCHEMA._private_record_schedule_change_v1();
drop function :SCHEMA._private_write_schedule_v1();
