/* gw:install */
-- Searches of the list of jobs that users of the admin have saved. A row names its user by the text of the primary key:
-- the users may be in another database.
create table :SCHEMA._private_saved_views (
  id bigint generated always as identity constraint saved_views_pkey primary key,
  owner text not null constraint saved_views_owner_check check (length(owner) <= 255),
  -- For the users that a view is shared with.
  owner_name text not null constraint saved_views_owner_name_check check (length(owner_name) <= 255),
  name text not null constraint saved_views_name_check check (length(name) <= 100),
  -- The parameters of the address of the list: search, state, order, columns.
  parameters jsonb not null default '{}',
  is_shared boolean not null default false,
  created_at timestamptz not null default now(),
  constraint saved_views_owner_name_key unique (owner, name)
);
alter table :SCHEMA._private_saved_views enable row level security;

-- The roles that could change jobs before this table existed may save views, and those that could only read jobs may only
-- read views; the policy is for roles that get the rights later.
create policy saved_views_by_grant on :SCHEMA._private_saved_views using (true) with check (true);
do $do$
declare
  role text;
  may_write boolean;
begin
  for role, may_write in
    select case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end,
      bool_or(granted.privilege_type = 'UPDATE')
    from pg_class as jobs
      cross join lateral aclexplode(jobs.relacl) as granted
    where jobs.oid = ':SCHEMA._private_jobs'::regclass
      and granted.privilege_type in ('SELECT', 'UPDATE')
      and granted.grantee <> jobs.relowner
    group by granted.grantee
  loop
    if may_write then
      execute format('grant select, insert, update, delete on :SCHEMA._private_saved_views to %s', role);
    else
      execute format('grant select on :SCHEMA._private_saved_views to %s', role);
    end if;
  end loop;
end
$do$;
