grant usage on schema :SCHEMA to :ROLE;
grant select on all tables in schema :SCHEMA to :ROLE;

do $$
declare
  secured regclass;
begin
  for secured in
    select oid from pg_class
    where relnamespace = (select oid from pg_namespace where nspname = :'SCHEMA') and relrowsecurity
  loop
    execute format('drop policy if exists %I on %s', :'POLICY(views)', secured);
    execute format('create policy %I on %s for select to %I using (true)', :'POLICY(views)', secured, :'ROLE');
  end loop;
end
$$;
