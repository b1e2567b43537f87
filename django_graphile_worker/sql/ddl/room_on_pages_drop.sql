/* gw:uninstall */
-- A value that an administrator has chosen stays.
do $do$
begin
  if exists (
    select from pg_class
    where oid = ':SCHEMA._private_jobs'::regclass and 'fillfactor=40' = any (reloptions)
  ) then
    alter table :SCHEMA._private_jobs reset (fillfactor);
  end if;
end
$do$;
