/* gw:uninstall */
drop function :SCHEMA._private_claim_limited_v1(
    text, int[], int[], float8[], int[], int, text[], timestamptz, timestamptz, float8, text[], int[], int[], float8[], int[]);
