/* gw:uninstall */
drop table :SCHEMA._private_limit_overrides;
