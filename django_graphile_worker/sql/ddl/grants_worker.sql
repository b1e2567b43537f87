grant usage on schema :SCHEMA to :ROLE;
grant select, insert, update, delete on all tables in schema :SCHEMA to :ROLE;
grant usage on all sequences in schema :SCHEMA to :ROLE;

:EVERY_ROW(works, all)
