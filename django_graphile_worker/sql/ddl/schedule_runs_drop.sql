/* gw:uninstall */
drop trigger schedule_runs_note on :SCHEMA._private_schedule_runs;
drop function :SCHEMA._private_note_runs_v1();
