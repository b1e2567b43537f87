/* gw:uninstall */
drop function :SCHEMA._private_forget_keys_v1(float8, int, bigint, text[], float8[]);
drop function :SCHEMA._private_forget_lanes_v1(float8, int);
drop function :SCHEMA._private_unpark_tasks_v1(int[], int[], float8, int);
drop function :SCHEMA._private_sweep_limits_v1(bigint, int, int, timestamptz, text[], int[], int[], float8[], int[]);
drop function :SCHEMA._private_unpark_jobs_v1(bigint[]);
drop function :SCHEMA._private_close_keys_v1(text[], text[], float8[], timestamptz);
drop function :SCHEMA._private_free_places_v1(bigint[], text[], int[]);
drop function :SCHEMA._private_attend_to_keys_v1(bigint[], int[], timestamptz);
drop function :SCHEMA._private_limit_rooms_v1(
    bigint[], int, timestamptz, text[], int[], int[], float8[], int[]);
drop function :SCHEMA._private_offer_turns_v1(bigint[]);
drop function :SCHEMA._private_first_in_queues_v1(int[], int[], int[], int[], text[], timestamptz);
drop function :SCHEMA._private_first_lanes_v1(int[]);
drop function :SCHEMA._private_wake_queues_v1(int[]);
drop function :SCHEMA._private_make_ready_v1(bigint[]);
drop function :SCHEMA._private_wake_lanes_v1(bigint[], int[]);
drop function :SCHEMA._private_park_jobs_v1(
    bigint[], int[], int[], float8[], int[], int[], int[], text[], int[], text[], text[], boolean[]);
drop function :SCHEMA._private_unsorted_jobs_v1(int[], int[], timestamptz, timestamptz, int, int, text[]);
drop function :SCHEMA._private_ready_lanes_v1(int[], int[], text[], int);
