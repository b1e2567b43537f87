/* gw:install */
select 1;
