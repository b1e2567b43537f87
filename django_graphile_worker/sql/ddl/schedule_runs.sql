/* gw:install */
-- What belongs to the rows of runs, whoever adds them: a worker at a tick of a schedule or of the crontab, or a person.
--
-- The job of a run has a flag, "schedule:<id>:<seconds>" or "crontab:<seconds>", and gets a row of results, status 0,
-- in the statement that adds it. Each statement that ends a job records its end in the row of results if there is one:
-- also the statements that know only the tasks of which results are kept, such as a recovery, a removal or a
-- cancellation. So the outcome of the run is known whatever becomes of the job, for as many seconds as the flag says.
--
-- The latest fifty rows of each item of the crontab are kept, and some more: the older rows of an item are deleted by
-- one of eight rows that are added. Those of a schedule are deleted by the statement that fires it.
create function :SCHEMA._private_note_runs_v1()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
begin
    -- A job that was replaced under its key has a row already. A role that got its rights before there were results may
    -- not write them.
    if has_table_privilege(':SCHEMA._private_results', 'insert')
        and has_table_privilege(':SCHEMA._private_results', 'select') then
        insert into :SCHEMA._private_results (
            job_id, task_identifier, queue_name, job_key, status, revision, added_at, expires_at)
        select job.id, task.identifier, queue.queue_name, job.key, 0, job.revision, job.created_at,
            clock_timestamp() + flag.seconds * interval '1 second'
        from added as run
        join only :SCHEMA._private_jobs as job on job.id = run.job_id
        join only :SCHEMA._private_tasks as task on task.id = job.task_id
        left join only :SCHEMA._private_job_queues as queue on queue.id = job.job_queue_id
        cross join lateral (
            -- In a tenth of the time of a regular expression.
            select max(part.seconds::int) as seconds
            from jsonb_object_keys(case when jsonb_typeof(job.flags) = 'object' then job.flags else '{}' end)
                as name(flag)
            cross join lateral (
                select case when starts_with(name.flag, 'schedule:') then split_part(name.flag, ':', 2) else '0' end
                        as id,
                    split_part(name.flag, ':', case when starts_with(name.flag, 'schedule:') then 3 else 2 end)
                        as seconds
            ) as part
            where name.flag in ('schedule:' || part.id || ':' || part.seconds, 'crontab:' || part.seconds)
                and ltrim(part.id, '0123456789') = '' and length(part.id) between 1 and 18
                and ltrim(part.seconds, '0123456789') = '' and length(part.seconds) between 1 and 9
        ) as flag
        where flag.seconds is not null
        on conflict on constraint results_pkey do nothing;
    end if;
    delete from :SCHEMA._private_schedule_runs as early
    using (
        select distinct run.crontab_identifier from added as run
        where run.crontab_identifier is not null and run.id % 8 = 0
    ) as source
    where early.crontab_identifier = source.crontab_identifier and early.id <= (
        select late.id from :SCHEMA._private_schedule_runs as late
        where late.crontab_identifier = source.crontab_identifier order by late.id desc offset 50 limit 1);
    return null;
end
$$;

create trigger schedule_runs_note after insert on :SCHEMA._private_schedule_runs
  referencing new table as added
  for each statement execute function :SCHEMA._private_note_runs_v1();
