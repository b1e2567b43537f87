/* gw:uninstall */
drop function :SCHEMA._private_undo_step_v1(uuid, int);
drop function :SCHEMA._private_change_jobs_v1(
  bigint[], text, timestamptz, int, int, int, json, int, text, timestamptz, uuid, int);
drop table :SCHEMA._private_action_steps;
drop table :SCHEMA._private_actions;
