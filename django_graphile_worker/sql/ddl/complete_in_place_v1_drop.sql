/* gw:uninstall */
drop function if exists :SCHEMA._private_complete_in_place_v1(tid[], xid[], text[], int[]);
