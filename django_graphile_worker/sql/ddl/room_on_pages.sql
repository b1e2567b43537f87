/* gw:install */
-- The claim of a job writes a new version of its row, with two more values. PostgreSQL writes it to the same page if
-- there is room, and otherwise to another page. On the same page, the log has only what differs between the two
-- versions, the old one need not be locked a second time, and one page instead of two is read and written. So new rows
-- leave more than half of each page free. A value that an administrator has chosen stays.
--
-- Before PostgreSQL 17, the planner takes the room for rows as long as the table has not been analyzed, and chooses
-- worse plans for claims.
do $do$
begin
  if current_setting('server_version_num')::int >= 170000 and not exists (
    select from pg_class
    where oid = ':SCHEMA._private_jobs'::regclass and reloptions::text ~ 'fillfactor='
  ) then
    alter table :SCHEMA._private_jobs set (fillfactor = 40);
  end if;
end
$do$;
