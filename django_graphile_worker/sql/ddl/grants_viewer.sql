grant usage on schema :SCHEMA to :ROLE;
grant select on all tables in schema :SCHEMA to :ROLE;

:EVERY_ROW(views, select)
