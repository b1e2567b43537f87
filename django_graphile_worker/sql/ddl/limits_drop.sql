/* gw:uninstall */
-- Without these tables a parked job would wait for ever.
update only :SCHEMA._private_jobs as job
set run_at = limited.run_at
from :SCHEMA._private_limited_jobs as limited
where job.id = limited.job_id and job.run_at = 'infinity';
drop table :SCHEMA._private_limit_starts;
drop table :SCHEMA._private_limit_places;
drop table :SCHEMA._private_limited_jobs;
drop table :SCHEMA._private_limit_lane_keys;
drop table :SCHEMA._private_limit_lanes;
drop table :SCHEMA._private_limit_keys;
