/* gw:uninstall */
drop function if exists :SCHEMA._private_complete_recorded_in_place_v1(
    tid[], xid[], text[], int[], bigint[], int[], int[], text[], boolean, bigint[], text[], bigint[], bigint[], float8[],
    text[], boolean[], timestamptz);
