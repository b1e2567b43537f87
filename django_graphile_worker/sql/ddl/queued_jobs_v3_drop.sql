/* gw:uninstall */
drop index if exists :SCHEMA.jobs_in_queue_index;
drop function if exists :SCHEMA._private_waiting_queues_v3(int[], timestamptz);
