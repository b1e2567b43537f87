/* gw:uninstall */
drop table :SCHEMA._private_saved_views;
