/* gw:uninstall */
drop function if exists :SCHEMA._private_complete_claims_v3(bigint[], text[], int[]);
