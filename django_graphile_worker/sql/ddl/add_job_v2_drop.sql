/* gw:uninstall */
drop function if exists :SCHEMA._private_keyed_adder_add_job(text, json, text, timestamptz, integer, text, integer, text[], text);
drop function if exists :SCHEMA._private_adder_add_job(text, json, text, timestamptz, integer, integer, text[]);
drop function if exists :SCHEMA._private_cancel_job(:SCHEMA._private_jobs, text);
