/* gw:uninstall */
-- An earlier transaction has replaced the functions that use them. A transaction that has called one of them may still
-- run the texts that it knows: it holds a lock on the jobs.
lock table :SCHEMA._private_jobs in access exclusive mode;
drop table if exists :SCHEMA._private_cancellations;
drop function if exists :SCHEMA._private_worker_of(text);
