/* gw:install */
-- When an item that is paused last ran: its own row says that it has run for ever,
-- which is what keeps workers, Node's too, from firing it.
create table :SCHEMA._private_paused_crontabs (
  identifier text constraint paused_crontabs_pkey primary key,
  last_execution timestamptz,
  paused_at timestamptz not null default pg_catalog.now()
);
alter table :SCHEMA._private_paused_crontabs enable row level security;
