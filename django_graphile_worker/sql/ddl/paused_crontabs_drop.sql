/* gw:uninstall */
-- What is paused stays paused: that is in the item's own row.
drop table :SCHEMA._private_paused_crontabs;
