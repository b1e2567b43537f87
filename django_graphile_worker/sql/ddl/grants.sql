/* gw:install */
-- Roles that could read or change jobs before the tables of this package existed get the same rights to those tables
-- that people and other programs use. Roles that work on jobs get all they need from the command "grants".
do $do$
declare
  role text;
  may_read boolean;
  may_change boolean;
  may_change_columns boolean;
  tables constant text := ':SCHEMA._private_events, :SCHEMA._private_pauses,'
    ' :SCHEMA._private_schedules, :SCHEMA._private_schedule_runs, :SCHEMA._private_schedule_changes';
  tables_of_changes constant text := ':SCHEMA._private_actions, :SCHEMA._private_action_steps,'
    ' :SCHEMA._private_limit_keys, :SCHEMA._private_limit_lanes, :SCHEMA._private_limit_lane_keys,'
    ' :SCHEMA._private_limited_jobs, :SCHEMA._private_limit_places, :SCHEMA._private_limit_starts,'
    ' :SCHEMA._private_limit_overrides';
begin
  for role, may_read, may_change, may_change_columns in
    select case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end,
      bool_or(granted.privilege_type = 'SELECT' and granted.is_whole_table),
      bool_or(granted.privilege_type = 'UPDATE' and granted.is_whole_table),
      bool_or(granted.privilege_type = 'UPDATE')
    from pg_class as jobs
      cross join lateral (
        select acl.*, true as is_whole_table from aclexplode(jobs.relacl) as acl
        union all
        select acl.*, false
        from pg_attribute as attribute
          cross join lateral aclexplode(attribute.attacl) as acl
        where attribute.attrelid = jobs.oid
      ) as granted
    where jobs.oid = ':SCHEMA._private_jobs'::regclass and granted.grantee <> jobs.relowner
    group by granted.grantee
  loop
    if may_change_columns then
      execute format('grant select, insert, update, delete on :SCHEMA._private_cancellations,'
        ' :SCHEMA._private_stop_requests to %s', role);
      execute format('grant select, delete on :SCHEMA._private_job_recoveries to %s', role);
    end if;
    if may_change then
      execute format('grant select, insert, update, delete on %s, %s to %s', tables, tables_of_changes, role);
    elsif may_read then
      execute format('grant select on %s to %s', tables, role);
    end if;
  end loop;
end
$do$;
