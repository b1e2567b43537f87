/* gw:uninstall */
drop policy cancellations_by_grant on :SCHEMA._private_cancellations;
drop policy installation_is_read on :SCHEMA._private_installation;
drop policy installation_gets_no_rows on :SCHEMA._private_installation;
drop policy installation_stays_as_it_is on :SCHEMA._private_installation;
drop policy installation_keeps_its_rows on :SCHEMA._private_installation;
alter table :SCHEMA._private_installation disable row level security;
alter function :SCHEMA._private_pick_queues(int[], int, timestamptz, text[], int) reset search_path;
alter function :SCHEMA._private_claim_jobs(text, int[], int, int, int, text[], timestamptz, int, float8, bigint)
  reset search_path;
alter function :SCHEMA._private_complete_claims(text, bigint[], smallint[]) reset search_path;
alter function :SCHEMA._private_fail_claims(text, bigint[], smallint[], text[], float8[], boolean[], text[], timestamptz)
  reset search_path;
alter function :SCHEMA._private_return_claims(text, bigint[], smallint[]) reset search_path;
