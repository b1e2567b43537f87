/* gw:uninstall */
select 1;
