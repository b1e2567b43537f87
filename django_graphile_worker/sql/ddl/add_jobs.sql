/* gw:install */
-- A key given twice in one batch: the last spec wins; its payload is what adding
-- one after the other would have left. Keys whose specs hold anything but an
-- array must not be merged with a waiting job: they come back as fresh keys.
create or replace function :SCHEMA._private_fold_specs(
  specs :SCHEMA.job_spec[],
  job_key_preserve_run_at boolean,
  out folded :SCHEMA.job_spec[],
  out fresh_keys text[]
) language plpgsql stable set search_path = pg_catalog, pg_temp as $function$
/* gw:fold_specs */
begin
  with given as (
    select
      spec.*,
      spec.ordinality as place,
      json_typeof(coalesce(spec.payload, '{}')) = 'array' as is_array
    from unnest(specs) with ordinality as spec
    where spec.job_key is not null
  ), kept as (
    -- What an object, number or null before it had left is overwritten.
    select
      given.*,
      max(given.place) over same_key = given.place as is_last,
      min(given.place) over same_key as first_place,
      coalesce(max(given.place) filter (where not given.is_array) over same_key, 0) as overwritten_at
    from given
    window same_key as (partition by given.job_key)
  ), merged as (
    select
      kept.job_key,
      '[' || coalesce(
        string_agg(
          substr(left(btrim(kept.payload::text, E' \t\n\r'), -1), 2), ', ' order by kept.place
        ) filter (where kept.is_array and kept.place > kept.overwritten_at and json_array_length(kept.payload) > 0),
        ''
      ) || ']' as payload,
      bool_or(not kept.is_array) as is_fresh
    from kept
    group by kept.job_key
  )
  select
    array_agg(
      row(
        kept.identifier,
        case when kept.is_array then merged.payload::json else kept.payload end,
        kept.queue_name,
        case when job_key_preserve_run_at then specs[kept.first_place].run_at else kept.run_at end,
        kept.max_attempts, kept.job_key, kept.priority, kept.flags
      ):::SCHEMA.job_spec
      order by kept.job_key collate "C"
    ),
    array_agg(kept.job_key) filter (where merged.is_fresh)
  into folded, fresh_keys
  from kept
    join merged on (merged.job_key = kept.job_key)
  where kept.is_last;
end
$function$;

-- Every key is taken in sorted order and by one statement, so two batches cannot
-- deadlock. A row that cannot be replaced gives up its key there and then (see
-- add_job); its spec is inserted in a second round that has nobody to wait for.
-- Returns how many of the jobs are due.
create or replace function :SCHEMA._private_put_keyed_jobs(
  specs :SCHEMA.job_spec[],
  fresh_keys text[],
  job_key_preserve_run_at boolean,
  task_ids jsonb,
  job_queue_ids jsonb
) returns bigint language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:put_keyed_jobs */
declare
  remaining :SCHEMA.job_spec[] := specs;
  cancelled bigint;
  due bigint;
  all_due bigint := 0;
begin
  loop
    with written as (
      insert into :SCHEMA._private_jobs as jobs (job_queue_id, task_id, payload, priority, run_at, max_attempts, flags, key)
      select
        (job_queue_ids ->> spec.queue_name)::integer, (task_ids ->> spec.identifier)::integer,
        coalesce(spec.payload, '{}'), coalesce(spec.priority, 0), coalesce(spec.run_at, now()),
        coalesce(spec.max_attempts, 25), case when cardinality(spec.flags) > 0 then (select jsonb_object_agg(flag, true) from unnest(spec.flags) as flag) end, spec.job_key
      from unnest(remaining) as spec
      where spec.job_key is not null
      order by spec.job_key collate "C"
      on conflict (key) do update set
        key = case when jobs.is_available then jobs.key end,
        attempts = case when jobs.is_available then 0 else jobs.max_attempts end,
        updated_at = case when jobs.is_available then now() else greatest(clock_timestamp(), jobs.locked_at + interval '1 microsecond') end,
        job_queue_id = case when jobs.is_available then excluded.job_queue_id else jobs.job_queue_id end,
        task_id = case when jobs.is_available then excluded.task_id else jobs.task_id end,
        payload = case
          when not jobs.is_available then jobs.payload
          when excluded.key = any(fresh_keys) then excluded.payload
          else :SCHEMA._private_merged_payload(jobs.payload, excluded.payload)
        end,
        priority = case when jobs.is_available then excluded.priority else jobs.priority end,
        run_at = case
          when not jobs.is_available or (job_key_preserve_run_at and jobs.attempts = 0) then jobs.run_at
          else excluded.run_at
        end,
        max_attempts = case when jobs.is_available then excluded.max_attempts else jobs.max_attempts end,
        last_error = case when jobs.is_available then null else jobs.last_error end,
        flags = case when jobs.is_available then excluded.flags else jobs.flags end,
        revision = case when jobs.is_available then jobs.revision % 2147483647 + 1 else jobs.revision end
      returning jobs.key, jobs.run_at
    )
    select
      count(*) filter (where written.key is null),
      count(*) filter (where written.key is not null and :SCHEMA._private_is_due(written.run_at))
    into cancelled, due
    from written;

    all_due := all_due + due;
    exit when cancelled = 0;

    select array_agg(spec) into remaining
    from unnest(remaining) as spec
    where not exists (select from :SCHEMA._private_jobs as jobs where jobs.key = spec.job_key);
  end loop;
  return all_due;
end
$function$;

create or replace function :SCHEMA.add_jobs(
  specs :SCHEMA.job_spec[],
  job_key_preserve_run_at boolean default false
) returns setof :SCHEMA._private_jobs language plpgsql volatile set search_path = pg_catalog, pg_temp as $function$
/* gw:add_jobs */
declare
  identifiers text[];
  queue_names text[];
  keys bigint;
  has_faults boolean;
  due bigint;
  task_ids jsonb;
  job_queue_ids jsonb;
  keyed :SCHEMA.job_spec[] := specs;
  fresh_keys text[] := '{}';
  unkeyed_ids bigint[];
begin
  select
    array_agg(alike.identifier),
    array_agg(alike.queue_name) filter (where alike.queue_name is not null),
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

  perform :SCHEMA._private_hold_names();
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
    select * into keyed, fresh_keys from :SCHEMA._private_fold_specs(specs, job_key_preserve_run_at);
  end if;
  due := due + :SCHEMA._private_put_keyed_jobs(keyed, fresh_keys, job_key_preserve_run_at, task_ids, job_queue_ids);

  with written as (
    insert into :SCHEMA._private_jobs (job_queue_id, task_id, payload, priority, run_at, max_attempts, flags)
    select
      (job_queue_ids ->> spec.queue_name)::integer, (task_ids ->> spec.identifier)::integer,
      coalesce(spec.payload, '{}'), coalesce(spec.priority, 0), coalesce(spec.run_at, now()),
      coalesce(spec.max_attempts, 25), case when cardinality(spec.flags) > 0 then (select jsonb_object_agg(flag, true) from unnest(spec.flags) as flag) end
    from unnest(specs) with ordinality as spec
    where spec.job_key is null
    order by spec.ordinality
    returning id
  )
  select array_agg(written.id order by written.id) into unkeyed_ids from written;
  perform :SCHEMA._private_notify(due);

  if unkeyed_ids is null then
    return query
      select jobs.*
      from unnest(specs) with ordinality as spec
        join :SCHEMA._private_jobs as jobs on (jobs.key = spec.job_key)
      order by spec.ordinality;
    return;
  end if;

  return query
    select jobs.*
    from (
      select
        spec.ordinality,
        coalesce(keyed_jobs.id, unkeyed_ids[row_number() over (partition by spec.job_key is null order by spec.ordinality)]) as id
      from unnest(specs) with ordinality as spec
        left join :SCHEMA._private_jobs as keyed_jobs on (keyed_jobs.key = spec.job_key)
    ) as written
      join :SCHEMA._private_jobs as jobs on (jobs.id = written.id)
    order by written.ordinality;
end
$function$;
