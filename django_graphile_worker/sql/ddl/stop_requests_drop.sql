/* gw:uninstall */
drop table :SCHEMA._private_stop_requests;
