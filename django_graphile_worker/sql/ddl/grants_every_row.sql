do $$
declare
  secured regclass;
begin
  for secured in
    select oid from pg_class
    where relnamespace = (select oid from pg_namespace where nspname = :'SCHEMA') and relrowsecurity
  loop
    execute format('drop policy if exists %I on %s', :'POLICY(:VERB)', secured);
    execute format('create policy %I on %s for :COMMAND to %I using (true)', :'POLICY(:VERB)', secured, :'ROLE');
  end loop;
end
$$;
