/* gw:install */
-- What is ours in this schema. Which migrations ran is Django's to know; this
-- tells two migrates at once apart, and what an adopted schema looked like.
create table :SCHEMA._private_installation (
  part text constraint installation_pkey primary key,
  installed_at timestamptz not null default now(),
  is_schema_made boolean not null default false,
  is_adopted boolean not null default false,
  found_functions jsonb not null default '{}',
  -- Workers of releases before this version cannot work with this part; null if all can.
  breaks_before text
);

-- Migrating an adopted schema back to zero runs the texts of the functions that were found, with the rights of whoever
-- migrates. Roles that were granted everything on all tables must not write them. These policies are restrictive, so
-- that no other policy gives the right back.
alter table :SCHEMA._private_installation enable row level security;
create policy installation_is_read on :SCHEMA._private_installation for select using (true);
create policy installation_gets_no_rows on :SCHEMA._private_installation as restrictive for insert with check (false);
create policy installation_stays_as_it_is on :SCHEMA._private_installation as restrictive for update using (false);
create policy installation_keeps_its_rows on :SCHEMA._private_installation as restrictive for delete using (false);
