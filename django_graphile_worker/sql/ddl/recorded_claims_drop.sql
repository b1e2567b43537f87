/* gw:uninstall */
drop function :SCHEMA._private_prune_waiters_v1();
drop function :SCHEMA._private_prune_results_v1(int, timestamptz, timestamptz);
drop function :SCHEMA._private_record_operator_v1(
    :SCHEMA._private_jobs[], smallint, text, text[], float8[], float8, boolean);
drop function :SCHEMA._private_release_stale_recorded_v1(
    float8, text, text[], float8[], float8, boolean, timestamptz);
drop function :SCHEMA._private_recover_recorded_v1(
    text[], int, int, text, text[], float8[], float8, boolean, timestamptz);
drop function :SCHEMA._private_record_lost_v1(
    :SCHEMA._private_jobs[], boolean[], text[], text, timestamptz, text[], float8[], float8, boolean);
drop function :SCHEMA._private_records_anything(float8[], float8, boolean);
drop function :SCHEMA._private_keep_of(text, text[], float8[], float8);
drop function :SCHEMA._private_return_recorded_v1(bigint[], text[], text[], boolean[], bigint[], text[], timestamptz);
drop function :SCHEMA._private_fail_recorded_v1(
    bigint[], text[], text[], float8[], boolean[], text[], bigint[], bigint[], text[], float8[], boolean[], boolean,
    text[], timestamptz);
drop function :SCHEMA._private_complete_recorded_v1(
    bigint[], text[], int[], bigint[], bigint[], int[], text[], float8[], text[], boolean[], boolean, text[], boolean,
    timestamptz);
drop function :SCHEMA._private_attempt(text, timestamptz, timestamptz, text, text);
drop function :SCHEMA._private_store_results_v1(:SCHEMA._private_results[]);
