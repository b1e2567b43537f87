/* gw:uninstall */
drop function :SCHEMA._private_expire_claims_v1(
    bigint[], text[], timestamptz[], text, text[], float8[], float8, boolean, timestamptz);
drop function :SCHEMA._private_count_expired_v1(text[], timestamptz);
alter table :SCHEMA._private_statistics drop column expired;
