grant usage on schema :SCHEMA to :ROLE;
grant select, insert, update, delete on all tables in schema :SCHEMA to :ROLE;
grant usage on all sequences in schema :SCHEMA to :ROLE;
-- Only the owner can make, index and drop the partitions of the history: these functions do it with the owner's rights.
grant execute on function :SCHEMA._private_make_history_partitions(int, timestamptz),
  :SCHEMA._private_drop_history(timestamptz, int), :SCHEMA._private_index_history(timestamptz) to :ROLE;
-- This table holds statements that a migration back to zero runs with the rights of the migrating role.
revoke insert, update, delete on :SCHEMA._private_installation from :ROLE;

:EVERY_ROW(works, all)
