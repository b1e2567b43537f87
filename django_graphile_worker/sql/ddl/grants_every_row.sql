do $$
declare
  secured pg_catalog.regclass;
begin
  for secured in
    select class.oid
    from pg_catalog.pg_class as class
      join pg_catalog.pg_namespace as namespace on (namespace.oid = class.relnamespace)
    where namespace.nspname = :'SCHEMA' and class.relrowsecurity
  loop
    execute pg_catalog.format('drop policy if exists %I on %s', :'POLICY(:VERB)'::pg_catalog.text, secured::pg_catalog.text);
    execute pg_catalog.format(
      'create policy %I on %s for :COMMAND to %I using (true)',
      :'POLICY(:VERB)'::pg_catalog.text, secured::pg_catalog.text, :'ROLE'::pg_catalog.text
    );
  end loop;
end
$$;
