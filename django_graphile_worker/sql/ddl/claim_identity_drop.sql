/* gw:uninstall */
drop table if exists :SCHEMA._private_cancellations;
drop function if exists :SCHEMA._private_worker_of(text);
