grant usage on schema :SCHEMA to :ROLE;
grant select, insert, update, delete on all tables in schema :SCHEMA to :ROLE;
grant usage on all sequences in schema :SCHEMA to :ROLE;
-- This table holds statements that a migration back to zero runs with the rights of the migrating role.
revoke insert, update, delete on :SCHEMA._private_installation from :ROLE;

:EVERY_ROW(works, all)
