/* gw:install */
-- Deletes finished jobs, which is how nearly every claim ends. The ids are in groups:
-- the first counts[1] of them were claimed with holders[1], the next counts[2] with
-- holders[2], and so on. A batch has the jobs of few claim statements, and the jobs of
-- one claim are found in a single scan of the primary key, at half the cost of a search
-- for each pair of an id and a holder.
--
-- As in end_claims_v2.sql, a claim is identified by the job's id and the whole locked_by,
-- and a row that another transaction is changing at the moment is skipped.
--
-- Returns null if all were deleted, which spares the worker to read and compare their
-- ids; otherwise the ids of those deleted.
create function :SCHEMA._private_complete_claims_v3(job_ids bigint[], holders text[], counts int[])
returns bigint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    holder text;
    first int := 1;
    claimed_ids bigint[]; locked_tids tid[]; locked_ids bigint[];
    deleted_ids bigint[] := '{}';
    is_partial boolean := false;
begin
    for place in 1 .. cardinality(holders) loop
        holder := holders[place];
        claimed_ids := job_ids[first:first + counts[place] - 1];
        first := first + counts[place];
        select coalesce(array_agg(locked.tid), '{}'), coalesce(array_agg(locked.id), '{}')
        into locked_tids, locked_ids
        from (
            select job.ctid as tid, job.id
            from only :SCHEMA._private_jobs as job
            where job.id = any (claimed_ids) and job.locked_by = holder
            for update skip locked
        ) as locked;
        is_partial := is_partial or cardinality(locked_ids) < counts[place];
        deleted_ids := deleted_ids || locked_ids;
        -- In a statement of its own, whose snapshot has the versions that were locked.
        delete from only :SCHEMA._private_jobs as job where job.ctid = any (locked_tids);
    end loop;
    return case when is_partial then deleted_ids end;
end
$$;
