/* gw:uninstall */
drop function :SCHEMA._private_forget_lanes_v1(float8, int, text[], float8[]);
drop function :SCHEMA._private_unpark_tasks_v1(int[], int[], float8, int);
drop function :SCHEMA._private_sweep_limits_v1(bigint, int, timestamptz, text[], int[], int[], float8[], int[]);
drop function :SCHEMA._private_unpark_jobs_v1(bigint[]);
drop function :SCHEMA._private_close_keys_v1(text[], text[], float8[], timestamptz);
drop function :SCHEMA._private_free_places_v1(bigint[], text[], int[]);
drop function :SCHEMA._private_attend_to_keys_v1(bigint[], int[], timestamptz);
drop function :SCHEMA._private_limit_rooms_v1(
    bigint[], int, timestamptz, text[], int[], int[], float8[], int[]);
drop function :SCHEMA._private_wake_lanes_v1(bigint[], int[]);
drop function :SCHEMA._private_park_jobs_v1(
    bigint[], int[], int[], int[], int[], int[], text[], boolean[], int[], text[], text[]);
drop function :SCHEMA._private_unsorted_jobs_v1(int[], int[], timestamptz, timestamptz, int, int, text[]);
