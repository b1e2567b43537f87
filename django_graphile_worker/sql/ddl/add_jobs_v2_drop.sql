/* gw:uninstall */
drop function :SCHEMA._private_keyed_adder_add_jobs(:SCHEMA.job_spec[], boolean);
drop function :SCHEMA._private_adder_add_jobs(:SCHEMA.job_spec[]);
