/* gw:uninstall */
drop index :SCHEMA.history_default_ended_at_index;
create index if not exists history_ended_at_index on :SCHEMA._private_history (ended_at);
