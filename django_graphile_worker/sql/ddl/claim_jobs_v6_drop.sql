/* gw:uninstall */
drop function if exists :SCHEMA._private_claim_jobs_v6(
    text, int[], int4multirange, int, int, int, int, bigint, int, text[], timestamptz,
    int[], float8[], bigint[], float8[], float8[], bigint[], float8[], bigint[], json,
    int[], int[]);
