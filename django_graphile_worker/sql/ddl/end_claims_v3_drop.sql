/* gw:uninstall */
drop function if exists :SCHEMA._private_return_claims_v3(bigint[], text[], text[]);
drop function if exists :SCHEMA._private_fail_claims_v3(
    bigint[], text[], text[], float8[], boolean[], text[], timestamptz);
