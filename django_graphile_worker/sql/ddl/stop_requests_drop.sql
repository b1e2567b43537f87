/* gw:uninstall */
drop function :SCHEMA._private_forget_stop_requests_v1();
drop function :SCHEMA._private_end_cancelled_of_v1(
    text[], float8, text, text[], float8[], float8, boolean, timestamptz);
drop function :SCHEMA._private_lock_claims_v1(bigint[], text[]);
drop function :SCHEMA._private_end_cancelled_v1(
    bigint[], text[], boolean, bigint[], text[], text[], text, text[], float8[], float8, boolean, timestamptz);
drop function :SCHEMA._private_request_stop_v1(:SCHEMA._private_jobs, text, text);
drop function :SCHEMA._private_has_result(bigint);
drop function :SCHEMA._private_cancel_by_key_v1(
    text, text, text, boolean, text, text[], float8[], float8, boolean);
drop function :SCHEMA._private_cancel_jobs_v1(
    bigint[], text, text, boolean, text, text[], float8[], float8, boolean);
drop function :SCHEMA._private_record_cancelled_v1(
    :SCHEMA._private_jobs[], text[], timestamptz[], text[], text[], text[], text[], text, timestamptz, text[], float8[],
    float8, boolean);
drop function :SCHEMA._private_cancellation_text(text, text);
update :SCHEMA._private_results set status = 3, value = null where status > 3;
alter table :SCHEMA._private_results drop constraint results_status_check;
alter table :SCHEMA._private_results add constraint results_status_check check (status between 0 and 3);
drop table :SCHEMA._private_stop_requests;
