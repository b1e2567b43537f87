/* gw:uninstall */
drop function :SCHEMA._private_remove_dead_workers_v1(text[], float8[], text);
drop function :SCHEMA._private_add_event_v1(text, int, text, jsonb, text, text, boolean);
drop function :SCHEMA._private_host_of_v1(text);
drop table :SCHEMA._private_events;
