/* gw:install */
-- The numbers that an operator gave a limit. They replace the numbers of the code and of the settings as a whole: a null is
-- no limit of that kind.
create table :SCHEMA._private_limit_overrides (
  limit_name text constraint limit_overrides_pkey primary key,
  concurrency int,
  -- So many starts in so many seconds.
  rate_count int,
  rate_seconds int,
  burst int,
  changed_by text not null,
  changed_at timestamptz not null default pg_catalog.now()
);
alter table :SCHEMA._private_limit_overrides enable row level security;
