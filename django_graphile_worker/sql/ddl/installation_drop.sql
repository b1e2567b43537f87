/* gw:uninstall */
drop table :SCHEMA._private_installation;
-- The functions that read them were replaced in an earlier transaction of a migrate back to zero, so that no session
-- that is adding a job finds them gone.
drop table if exists :SCHEMA._private_names_lock;
drop sequence if exists :SCHEMA._private_moved_jobs;
