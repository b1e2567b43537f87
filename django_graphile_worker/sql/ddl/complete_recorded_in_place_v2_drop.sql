/* gw:uninstall */
drop function :SCHEMA._private_complete_recorded_in_place_v2(
    tid[], xid[], text[], int[], bigint[], int[], int[], text[], boolean, bigint[], text[], bigint[], bigint[], float8[],
    text[], boolean[], timestamptz);
