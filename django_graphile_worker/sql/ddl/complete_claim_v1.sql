/* gw:install */
-- Deletes the finished job of an atomic task, inside the transaction of the task; returns whether the claim still
-- existed. A function, because its plan is kept by the session: the connection is that of the site, which mostly
-- prepares no statements, and to plan a statement on a table with many indexes takes longer than to run it. It waits for
-- a row that another transaction has locked.
create function :SCHEMA._private_complete_claim_v1(job_id bigint, holder text)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
begin
    delete from only :SCHEMA._private_jobs as job where job.id = job_id and job.locked_by = holder;
    return found;
end
$$;
