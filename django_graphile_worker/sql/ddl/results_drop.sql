/* gw:uninstall */
drop table :SCHEMA._private_history;
drop table :SCHEMA._private_waiters;
drop table :SCHEMA._private_results;
