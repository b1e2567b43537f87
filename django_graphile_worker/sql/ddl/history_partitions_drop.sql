/* gw:uninstall */
drop function :SCHEMA._private_index_history_v1(timestamptz);
drop function :SCHEMA._private_drop_history_v1(timestamptz, int);
drop function :SCHEMA._private_make_history_partitions_v1(int, timestamptz);
drop function :SCHEMA._private_history_ranges(regclass);
