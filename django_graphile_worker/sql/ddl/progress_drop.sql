/* gw:uninstall */
drop index :SCHEMA.history_ended_at_index;
drop table :SCHEMA._private_progress;
