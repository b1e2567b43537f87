/* gw:uninstall */
drop table :SCHEMA._private_progress;
