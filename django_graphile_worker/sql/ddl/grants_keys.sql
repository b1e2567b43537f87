grant execute on function :SCHEMA._private_keyed_adder_add_job(
  text, json, text, timestamptz, integer, text, integer, text[], text
) to :ROLE;
grant execute on function :SCHEMA._private_keyed_adder_add_jobs(:SCHEMA.job_spec[], boolean) to :ROLE;
grant execute on function :SCHEMA._private_keyed_adder_add_unique_jobs(json, boolean, timestamptz) to :ROLE;
