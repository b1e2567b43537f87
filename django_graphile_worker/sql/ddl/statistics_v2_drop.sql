/* gw:uninstall */
select :SCHEMA._private_fold_statistics_v1('0 seconds', 1000000);
drop function :SCHEMA._private_fold_statistics_v1(interval, integer);
drop function :SCHEMA._private_add_to_buckets(integer[], integer[], bigint[]);
drop table :SCHEMA._private_statistics_pending;
