/* gw:uninstall */
drop function :SCHEMA._private_sample_backlog_v1(integer, integer, integer, timestamptz);
drop function :SCHEMA._private_estimate_backlog_v1(integer, timestamptz);
drop function :SCHEMA._private_fold_named_statistics_v1(interval, integer, integer);
drop table :SCHEMA._private_backlog_samples;
drop table :SCHEMA._private_named_statistics_pending;
drop table :SCHEMA._private_named_statistics;
