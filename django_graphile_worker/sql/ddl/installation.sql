/* gw:install */
-- What is ours in this schema. Which migrations ran is Django's to know; this
-- tells two migrates at once apart, and what an adopted schema looked like.
create table :SCHEMA._private_installation (
  part text constraint installation_pkey primary key,
  installed_at timestamptz not null default now(),
  is_schema_made boolean not null default false,
  is_adopted boolean not null default false,
  found_functions jsonb not null default '{}'
);
