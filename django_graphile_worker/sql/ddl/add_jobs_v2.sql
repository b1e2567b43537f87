/* gw:install */
-- A key given twice in one batch: the last spec wins, in the place of the first; its payload is what adding one after
-- the other would have left. Keys whose specs hold anything but an array must not be merged with a waiting job: they
-- come back as fresh keys. Specs without a key come through as they are. The planner's settings undo those of add_jobs,
-- which calls this function: here two sets of names are joined that have no index.
create or replace function :SCHEMA._private_fold_specs(
  specs :SCHEMA.job_spec[],
  job_key_preserve_run_at boolean,
  out folded :SCHEMA.job_spec[],
  out fresh_keys text[]
) language plpgsql stable set search_path = pg_catalog, pg_temp set enable_hashjoin = on set enable_mergejoin = on set enable_material = on
as $function$
/* gw:fold_specs */
begin
  with given as (
    select
      spec.*,
      -- A spec without a key is alone under its place.
      coalesce('k' || spec.job_key, 'p' || spec.ordinality) as name,
      spec.ordinality as place,
      json_typeof(coalesce(spec.payload, '{}')) = 'array' as is_array
    from unnest(specs) with ordinality as spec
  ), kept as (
    -- What an object, number or null before it had left is overwritten.
    select
      given.*,
      max(given.place) over same_name = given.place as is_last,
      min(given.place) over same_name as first_place,
      coalesce(max(given.place) filter (where not given.is_array) over same_name, 0) as overwritten_at
    from given
    window same_name as (partition by given.name)
  ), merged as (
    select
      kept.name,
      '[' || coalesce(
        string_agg(
          substr(left(btrim(kept.payload::text, E' \t\n\r'), -1), 2), ', ' order by kept.place
        ) filter (where kept.is_array and kept.place > kept.overwritten_at and json_array_length(kept.payload) > 0),
        ''
      ) || ']' as payload,
      bool_or(not kept.is_array) as is_fresh,
      (array_agg(kept.run_at order by kept.place))[1] as first_run_at
    from kept
    group by kept.name
  )
  select
    array_agg(
      row(
        kept.identifier,
        case when kept.is_array then merged.payload::json else kept.payload end,
        kept.queue_name,
        case when job_key_preserve_run_at then merged.first_run_at else kept.run_at end,
        kept.max_attempts, kept.job_key, kept.priority, kept.flags
      ):::SCHEMA.job_spec
      order by kept.first_place
    ),
    coalesce(array_agg(kept.job_key) filter (where merged.is_fresh and kept.job_key is not null), '{}')
  into folded, fresh_keys
  from kept
    join merged on (merged.name = kept.name)
  where kept.is_last;
end
$function$;

-- Ids follow the order of the specs, which is the order in which jobs of one priority and time run.
--
-- No two calls wait for each other in a ring. First, holding no row, new keys are inserted by one statement in sorted
-- order: whoever waits for a key here holds nothing but keys that sort before it. Then the rows that other keys have are
-- locked in the order of their ids, as the functions that manage jobs lock them; those never wait for rows that are not
-- committed. A row that cannot be replaced (it runs, or its attempts are used up) gives up its key, and the next round
-- inserts; nobody else can come between. But a row that has gone between the two steps leaves a key that others may be
-- inserting, and to wait for it now would close a ring: then everything is given up and begun again, if the caller can.
--
-- Returns how many of the jobs are due.
create or replace function :SCHEMA._private_put_jobs_once(
  specs :SCHEMA.job_spec[],
  ids bigint[],
  fresh_keys text[],
  job_key_preserve_run_at boolean,
  task_ids jsonb,
  job_queue_ids jsonb,
  can_begin_again boolean
) returns bigint language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off
as $function$
/* gw:put_jobs_once */
declare
  remaining :SCHEMA.job_spec[] := specs;
  remaining_ids bigint[] := ids;
  inserted bigint;
  found_rows bigint;
  waiting bigint;
  is_moved boolean;
  replacement :SCHEMA.job_spec;
  replaced bigint[];
  replaced_keys text[];
  replaced_id bigint;
  replaced_run_at timestamptz;
  due bigint;
  all_due bigint := 0;
begin
  loop
    with written as (
      insert into :SCHEMA._private_jobs as jobs (id, job_queue_id, task_id, payload, priority, run_at, max_attempts, flags, key)
      overriding system value
      select
        spec.id, (job_queue_ids ->> spec.queue_name)::integer, (task_ids ->> spec.identifier)::integer,
        coalesce(spec.payload, '{}'), coalesce(spec.priority, 0), coalesce(spec.run_at, now()),
        coalesce(spec.max_attempts, 25), case when cardinality(spec.flags) > 0 then (select jsonb_object_agg(flag, true) from unnest(spec.flags) as flag) end, spec.job_key
      from rows from (unnest(remaining), unnest(remaining_ids)) as spec (
        identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, id
      )
      order by spec.job_key collate "C", spec.id
      on conflict (key) do nothing
      returning jobs.run_at
    )
    select count(*), count(*) filter (where :SCHEMA._private_is_due(written.run_at)) into inserted, due from written;
    all_due := all_due + due;
    exit when inserted = cardinality(remaining);

    select
      array_agg(row(
        spec.identifier, spec.payload, spec.queue_name, spec.run_at, spec.max_attempts, spec.job_key, spec.priority, spec.flags
      ):::SCHEMA.job_spec),
      array_agg(spec.id)
    into remaining, remaining_ids
    from rows from (unnest(remaining), unnest(remaining_ids)) as spec (
      identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, id
    )
    where not exists (select from only :SCHEMA._private_jobs as jobs where jobs.id = spec.id);

    with taken as materialized (
      select jobs.id, jobs.key, jobs.locked_at, jobs.locked_by, jobs.attempts, jobs.is_available, jobs.task_id, jobs.job_queue_id
      from only :SCHEMA._private_jobs as jobs
      where jobs.key = any(array(select spec.job_key from unnest(remaining) as spec))
      order by jobs.id
      for update
    ), marked as (
      insert into :SCHEMA._private_cancellations as known (job_id, locked_by, kind, attempts, job_key, cancelled_at)
      select taken.id, taken.locked_by, 'replaced', taken.attempts, taken.key, clock_timestamp()
      from taken
      where taken.locked_at is not null and taken.locked_by is not null
      on conflict on constraint cancellations_pkey do update set
        kind = excluded.kind, attempts = excluded.attempts, job_key = excluded.job_key, cancelled_at = excluded.cancelled_at
    ), cancelled as (
      update only :SCHEMA._private_jobs as jobs set
        key = null,
        attempts = jobs.max_attempts,
        updated_at = greatest(clock_timestamp(), jobs.locked_at + interval '1 microsecond')
      from taken
      where jobs.id = taken.id and not taken.is_available
    ), names as (
      select jsonb_object_agg(
        spec.job_key, array[(task_ids ->> spec.identifier)::integer, (job_queue_ids ->> spec.queue_name)::integer]
      ) as ids
      from unnest(remaining) as spec
    )
    select
      count(*),
      count(*) filter (where taken.is_available),
      coalesce(
        bool_or(names.ids -> taken.key <> to_jsonb(array[taken.task_id, taken.job_queue_id])) filter (where taken.is_available),
        false
      )
    into found_rows, waiting, is_moved
    from taken
      cross join names;
    if can_begin_again and found_rows < cardinality(remaining) then
      raise exception using errcode = 'GWAGN', message = 'A job was removed meanwhile; the keys are tried again.';
    end if;

    -- One by one: a plan for all of them that a session made when there were few jobs would read every job.
    replaced := '{}';
    replaced_keys := '{}';
    for replacement in select given.* from unnest(remaining) as given loop
      update only :SCHEMA._private_jobs as jobs set
        attempts = 0,
        updated_at = now(),
        job_queue_id = (job_queue_ids ->> replacement.queue_name)::integer,
        task_id = (task_ids ->> replacement.identifier)::integer,
        payload = case
          when replacement.job_key = any(fresh_keys) then coalesce(replacement.payload, '{}')
          else :SCHEMA._private_merged_payload(jobs.payload, coalesce(replacement.payload, '{}'))
        end,
        priority = coalesce(replacement.priority, 0),
        run_at = case
          when job_key_preserve_run_at and jobs.attempts = 0 then :SCHEMA._private_true_run_at(jobs.id, jobs.run_at)
          else coalesce(replacement.run_at, now())
        end,
        max_attempts = coalesce(replacement.max_attempts, 25),
        last_error = null,
        flags = case when cardinality(replacement.flags) > 0 then (select jsonb_object_agg(flag, true) from unnest(replacement.flags) as flag) end,
        revision = jobs.revision % 2147483647 + 1
      where jobs.key = replacement.job_key and jobs.is_available
      returning jobs.id, jobs.run_at into replaced_id, replaced_run_at;
      if found then
        replaced := replaced || replaced_id;
        replaced_keys := replaced_keys || replacement.job_key;
        all_due := all_due + :SCHEMA._private_is_due(replaced_run_at)::integer;
      end if;
    end loop;

    if cardinality(replaced) > 0 then
      -- A row that was not among those that were locked may have had other names: see _private_moved_jobs.
      if is_moved or cardinality(replaced) > waiting then
        perform nextval(':SCHEMA._private_moved_jobs');
      end if;
      -- The deaths of workers that held the job before were not this one's.
      delete from only :SCHEMA._private_job_recoveries as recoveries where recoveries.job_id = any(replaced);
      exit when cardinality(replaced) = cardinality(remaining);
    end if;

    select
      array_agg(row(
        spec.identifier, spec.payload, spec.queue_name, spec.run_at, spec.max_attempts, spec.job_key, spec.priority, spec.flags
      ):::SCHEMA.job_spec),
      array_agg(spec.id)
    into remaining, remaining_ids
    from rows from (unnest(remaining), unnest(remaining_ids)) as spec (
      identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, id
    )
    where not jsonb_object(replaced_keys, replaced_keys) ? spec.job_key;
  end loop;
  return all_due;
end
$function$;

-- The subtransaction is what can be given up. A batch with a single key needs none: it holds no other key while it waits.
create or replace function :SCHEMA._private_put_jobs(
  specs :SCHEMA.job_spec[],
  ids bigint[],
  fresh_keys text[],
  job_key_preserve_run_at boolean,
  task_ids jsonb,
  job_queue_ids jsonb
) returns bigint language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off
as $function$
/* gw:put_jobs */
begin
  if (select count(spec.job_key) from unnest(specs) as spec) <= 1 then
    return :SCHEMA._private_put_jobs_once(specs, ids, fresh_keys, job_key_preserve_run_at, task_ids, job_queue_ids, false);
  end if;
  loop
    begin
      return :SCHEMA._private_put_jobs_once(specs, ids, fresh_keys, job_key_preserve_run_at, task_ids, job_queue_ids, true);
    exception when sqlstate 'GWAGN' then
      null;
    end;
  end loop;
end
$function$;

create or replace function :SCHEMA.add_jobs(
  specs :SCHEMA.job_spec[],
  job_key_preserve_run_at boolean default false
) returns setof :SCHEMA._private_jobs language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off
as $function$
/* gw:add_jobs */
declare
  identifiers text[];
  queue_names text[];
  keys bigint;
  has_faults boolean;
  due bigint;
  task_ids jsonb;
  job_queue_ids jsonb;
  folded :SCHEMA.job_spec[] := specs;
  fresh_keys text[] := '{}';
  ids bigint[];
  unkeyed_ids bigint[];
begin
  select
    array_agg(distinct alike.identifier),
    array_agg(distinct alike.queue_name) filter (where alike.queue_name is not null),
    sum(alike.keys),
    bool_or(alike.has_faults),
    sum(alike.due)
  into identifiers, queue_names, keys, has_faults, due
  from (
    select
      spec.identifier,
      spec.queue_name,
      count(spec.job_key) as keys,
      bool_or(:SCHEMA._private_job_fault(spec.identifier, spec.queue_name, spec.run_at, spec.max_attempts, spec.job_key, spec.priority, null) is not null) as has_faults,
      count(*) filter (where spec.job_key is null and (spec.run_at is null or :SCHEMA._private_is_due(spec.run_at))) as due
    from unnest(specs) as spec
    group by spec.identifier, spec.queue_name
  ) as alike;

  if has_faults is null then
    return;
  elsif has_faults then
    perform :SCHEMA._private_refuse_job(
      fault, spec.identifier, spec.queue_name, spec.run_at, spec.max_attempts, spec.job_key, spec.priority, null
    )
    from unnest(specs) with ordinality as spec
      cross join lateral :SCHEMA._private_job_fault(
        spec.identifier, spec.queue_name, spec.run_at, spec.max_attempts, spec.job_key, spec.priority, null
      ) as fault
    where fault is not null
    order by spec.ordinality
    limit 1;
  end if;

  -- A role that may only add jobs has no right to the tables: a function that has one adds them for it.
  if not has_table_privilege(':SCHEMA._private_jobs'::regclass, 'insert') then
    if keys = 0 and has_function_privilege(':SCHEMA._private_adder_add_jobs(:SCHEMA.job_spec[])', 'execute') then
      return query select job.* from :SCHEMA._private_adder_add_jobs(specs) as job;
      return;
    elsif keys > 0 and has_function_privilege(
      ':SCHEMA._private_keyed_adder_add_jobs(:SCHEMA.job_spec[], boolean)', 'execute'
    ) then
      return query select job.* from :SCHEMA._private_keyed_adder_add_jobs(specs, job_key_preserve_run_at) as job;
      return;
    end if;
  end if;

  -- Reading takes the lock that keeps cleanup() from deleting a name while an uncommitted job uses it.
  perform from :SCHEMA._private_names_lock;
  task_ids := :SCHEMA._private_task_ids(identifiers);
  if queue_names is not null then
    job_queue_ids := :SCHEMA._private_job_queue_ids(queue_names);
  end if;

  if keys = 0 then
    return query
      insert into :SCHEMA._private_jobs (job_queue_id, task_id, payload, priority, run_at, max_attempts, flags)
      select
        (job_queue_ids ->> spec.queue_name)::integer, (task_ids ->> spec.identifier)::integer,
        coalesce(spec.payload, '{}'), coalesce(spec.priority, 0), coalesce(spec.run_at, now()),
        coalesce(spec.max_attempts, 25), case when cardinality(spec.flags) > 0 then (select jsonb_object_agg(flag, true) from unnest(spec.flags) as flag) end
      from unnest(specs) with ordinality as spec
      order by spec.ordinality
      returning *;
    perform :SCHEMA._private_notify(due);
    return;
  end if;

  if keys > (select count(distinct spec.job_key collate "C") from unnest(specs) as spec) then
    -- Folding drops specs that a later one overwrites: a null among their flags is refused all the same.
    perform jsonb_object_agg(flag, true) from unnest(specs) as spec cross join lateral unnest(spec.flags) as flag;
    select * into folded, fresh_keys from :SCHEMA._private_fold_specs(specs, job_key_preserve_run_at);
  end if;
  ids := array(select nextval(':SCHEMA.jobs_id_seq1') from generate_series(1, cardinality(folded)));
  due := :SCHEMA._private_put_jobs(folded, ids, fresh_keys, job_key_preserve_run_at, task_ids, job_queue_ids);
  perform :SCHEMA._private_notify(due);

  if keys = cardinality(specs) then
    return query
      select jobs.*
      from unnest(specs) with ordinality as spec
        cross join lateral (select jobs.* from only :SCHEMA._private_jobs as jobs where jobs.key = spec.job_key offset 0) as jobs
      order by spec.ordinality;
    return;
  end if;

  -- Specs without a key stand in the same order in both arrays.
  unkeyed_ids := array(
    select spec.id
    from rows from (unnest(folded), unnest(ids)) as spec (
      identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, id
    )
    where spec.job_key is null
    order by spec.id
  );
  return query
    select jobs.*
    from (
      select
        spec.ordinality,
        spec.job_key,
        case when spec.job_key is null then row_number() over (partition by spec.job_key is null order by spec.ordinality) end as place
      from unnest(specs) with ordinality as spec
    ) as given
      left join lateral (
        select jobs.id from only :SCHEMA._private_jobs as jobs where jobs.key = given.job_key offset 0
      ) as keyed on true
      cross join lateral (
        select jobs.*
        from only :SCHEMA._private_jobs as jobs
        where jobs.id = coalesce(keyed.id, unkeyed_ids[given.place])
        offset 0
      ) as jobs
    order by given.ordinality;
end
$function$;

-- For roles that may add jobs and read nothing: see _private_adder_add_job.
create or replace function :SCHEMA._private_adder_add_jobs(specs :SCHEMA.job_spec[])
returns setof :SCHEMA._private_jobs language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $function$
/* gw:adder_add_jobs */
begin
  if exists (select from unnest(specs) as spec where spec.job_key is not null) then
    raise exception using errcode = 'insufficient_privilege',
      message = 'This role may add jobs without a job key only. Ask the owner of the schema for the grants of a keyed adder.';
  end if;
  return query select job.* from :SCHEMA.add_jobs(specs) as job;
end
$function$;

create or replace function :SCHEMA._private_keyed_adder_add_jobs(specs :SCHEMA.job_spec[], job_key_preserve_run_at boolean)
returns setof :SCHEMA._private_jobs language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $function$
/* gw:keyed_adder_add_jobs */
declare
  job :SCHEMA._private_jobs;
  place integer := 0;
  payloads json[] := array(select spec.payload from unnest(specs) with ordinality as spec order by spec.ordinality);
begin
  -- The rows come in the order of the specs.
  for job in select added.* from :SCHEMA.add_jobs(specs, job_key_preserve_run_at) as added loop
    place := place + 1;
    if job.revision > 0 then
      job.payload := coalesce(payloads[place], '{}');
    end if;
    return next job;
  end loop;
end
$function$;

revoke all on function :SCHEMA._private_adder_add_jobs(:SCHEMA.job_spec[]) from public;
revoke all on function :SCHEMA._private_keyed_adder_add_jobs(:SCHEMA.job_spec[], boolean) from public;
