drop function if exists :SCHEMA._private_claim_jobs(
    text, int[], int, int, int, text[], timestamptz, int, float8, bigint);
drop function if exists :SCHEMA._private_pick_queues(int[], int, timestamptz, text[], int);
drop function if exists :SCHEMA._private_complete_claims(text, bigint[], smallint[]);
drop function if exists :SCHEMA._private_fail_claims(
    text, bigint[], smallint[], text[], float8[], boolean[], text[], timestamptz);
drop function if exists :SCHEMA._private_return_claims(text, bigint[], smallint[]);
