/* gw:uninstall */
drop index if exists :SCHEMA.jobs_due_by_queue_index;
drop function if exists :SCHEMA._private_waiting_queues_v2(int[], timestamptz);
drop function if exists :SCHEMA._private_release_queues_v2(int[], text[]);
drop function if exists :SCHEMA._private_return_claims_v2(bigint[], text[], text[]);
drop function if exists :SCHEMA._private_is_dropped(text, json);
drop function if exists :SCHEMA._private_fail_claims_v2(
    bigint[], text[], text[], float8[], boolean[], text[], timestamptz);
drop function if exists :SCHEMA._private_complete_claims_v2(bigint[], text[]);
