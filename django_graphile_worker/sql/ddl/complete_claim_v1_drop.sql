/* gw:uninstall */
drop function if exists :SCHEMA._private_complete_claim_v1(bigint, text);
