grant usage on schema :SCHEMA to :ROLE;
grant select, insert, update, delete on all tables in schema :SCHEMA to :ROLE;
grant usage on all sequences in schema :SCHEMA to :ROLE;

do $$
declare
  secured regclass;
begin
  for secured in
    select oid from pg_class
    where relnamespace = (select oid from pg_namespace where nspname = :'SCHEMA') and relrowsecurity
  loop
    execute format('drop policy if exists %I on %s', :'POLICY(works)', secured);
    execute format('create policy %I on %s to %I using (true) with check (true)', :'POLICY(works)', secured, :'ROLE');
  end loop;
end
$$;
