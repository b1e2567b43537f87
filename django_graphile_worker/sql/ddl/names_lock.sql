/* gw:install */
-- Every transaction that adds a job reads this empty table, and so holds a lock on it until it ends. cleanup() locks
-- it exclusively for a moment before it deletes names that no job uses. Unlike an advisory lock, it is out of reach of
-- roles that have no right in this schema; SELECT alone allows no lock that keeps an adder waiting.
-- Migrating back leaves it until the last step: a call of add_job that has begun still reads it.
create table if not exists :SCHEMA._private_names_lock ();
grant select on :SCHEMA._private_names_lock to public;

-- Advances when a job that waits is replaced by one with another task or queue. Jobs that were added after cleanup()
-- looked have higher ids; this one would have a lower id and go unseen, so cleanup() then looks again.
create sequence if not exists :SCHEMA._private_moved_jobs;
grant usage on sequence :SCHEMA._private_moved_jobs to public;

-- Whoever may change jobs may also record what became of them: the roles that had this right before these tables
-- existed, and the policy is for roles that get it later.
create policy cancellations_by_grant on :SCHEMA._private_cancellations using (true) with check (true);
do $do$
declare
  role text;
  is_whole_table boolean;
begin
  for role, is_whole_table in
    select case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end, bool_or(granted.is_whole_table)
    from pg_class as jobs
      cross join lateral (
        select acl.*, true as is_whole_table from aclexplode(jobs.relacl) as acl
        union all
        select acl.*, false
        from pg_attribute as attribute
          cross join lateral aclexplode(attribute.attacl) as acl
        where attribute.attrelid = jobs.oid
      ) as granted
    where jobs.oid = ':SCHEMA._private_jobs'::regclass
      and granted.privilege_type = 'UPDATE'
      and granted.grantee <> jobs.relowner
    group by granted.grantee
  loop
    execute format('grant select, insert, update, delete on :SCHEMA._private_cancellations to %s', role);
    execute format('grant select, delete on :SCHEMA._private_job_recoveries to %s', role);
    -- For cleanup(), which locks it.
    if is_whole_table then
      execute format('grant update on :SCHEMA._private_names_lock to %s', role);
    end if;
  end loop;
end
$do$;

-- Migrating an adopted schema back to zero runs the texts of the functions that were found, with the rights of whoever
-- migrates. Roles that were granted everything on all tables must not write them. These policies are restrictive, so
-- that no other policy gives the right back.
alter table :SCHEMA._private_installation enable row level security;
create policy installation_is_read on :SCHEMA._private_installation for select using (true);
create policy installation_gets_no_rows on :SCHEMA._private_installation as restrictive for insert with check (false);
create policy installation_stays_as_it_is on :SCHEMA._private_installation as restrictive for update using (false);
create policy installation_keeps_its_rows on :SCHEMA._private_installation as restrictive for delete using (false);

-- The functions of migration 0002 stay for workers that still call them.
alter function :SCHEMA._private_pick_queues(int[], int, timestamptz, text[], int)
  set search_path = pg_catalog, pg_temp;
alter function :SCHEMA._private_claim_jobs(text, int[], int, int, int, text[], timestamptz, int, float8, bigint)
  set search_path = pg_catalog, pg_temp;
alter function :SCHEMA._private_complete_claims(text, bigint[], smallint[])
  set search_path = pg_catalog, pg_temp;
alter function :SCHEMA._private_fail_claims(text, bigint[], smallint[], text[], float8[], boolean[], text[], timestamptz)
  set search_path = pg_catalog, pg_temp;
alter function :SCHEMA._private_return_claims(text, bigint[], smallint[])
  set search_path = pg_catalog, pg_temp;
