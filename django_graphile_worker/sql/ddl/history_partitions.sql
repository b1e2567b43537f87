/* gw:install */
-- The partitions of the history, one for each day in UTC. Only the owner of a table can
-- make and drop its partitions: these functions do it for the roles that run workers.

-- The BRIN index of a partition.
create function :SCHEMA._private_history_ranges(partition regclass)
returns regclass language sql stable set search_path = pg_catalog, pg_temp as $$
    select index.indexrelid::regclass
    from pg_index as index
    join pg_class as class on class.oid = index.indexrelid
    join pg_am as method on method.oid = class.relam
    where index.indrelid = partition and method.amname = 'brin'
$$;

-- Makes the missing partitions of the days around a moment; returns how many. Rows of such
-- a day that are in the default partition already move, unless they are too many: then the
-- day stays there. Does nothing while another session changes the partitions.
create function :SCHEMA._private_make_history_partitions_v1(days_ahead int, moment timestamptz default null)
returns int
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
    first_day constant date := (coalesce(moment, now()) at time zone 'UTC')::date;
    day date;
    name text;
    beginning timestamptz; ending timestamptz;
    made int := 0;
begin
    for day in select first_day + ahead from generate_series(0, days_ahead) as ahead loop
        name := '_private_history_' || to_char(day, 'YYYYMMDD');
        continue when to_regclass(format('%s.%I', ':SCHEMA', name)) is not null;
        begin
            lock table only :SCHEMA._private_history in share update exclusive mode nowait;
        exception when lock_not_available then
            return made;
        end;
        beginning := day::timestamp at time zone 'UTC';
        ending := (day + 1)::timestamp at time zone 'UTC';
        -- Another session may have made it before this one had the lock.
        continue when to_regclass(format('%s.%I', ':SCHEMA', name)) is not null;
        continue when (
            select count(*) > 10000 from (
                select from only :SCHEMA._private_history_default as early
                where early.ended_at >= beginning and early.ended_at < ending limit 10001) as found);
        execute format('create table %s.%I (like %s including defaults including constraints)',
            ':SCHEMA', name, ':SCHEMA._private_history');
        execute format('alter table %s.%I enable row level security', ':SCHEMA', name);
        if beginning <= clock_timestamp() then
            -- Attempts of this day may end now. One that has chosen the default partition already, and waits for it,
            -- would be refused after the attachment: so none may choose before.
            lock table only :SCHEMA._private_history in share row exclusive mode;
        end if;
        lock table only :SCHEMA._private_history_default in access exclusive mode;
        execute format(
            'with moved as (delete from only %s where ended_at >= $1 and ended_at < $2 returning *)
            insert into %s.%I select * from moved', ':SCHEMA._private_history_default', ':SCHEMA', name)
            using beginning, ending;
        execute format('alter table %s attach partition %s.%I for values from (%L) to (%L)',
            ':SCHEMA._private_history', ':SCHEMA', name, beginning, ending);
        -- An empty index has a summary of its first pages, which every row on them would
        -- change, at ten times the cost of the row.
        perform brin_desummarize_range(ranges.id, 0)
        from :SCHEMA._private_history_ranges(format('%s.%I', ':SCHEMA', name)::regclass) as ranges(id);
        made := made + 1;
    end loop;
    return made;
end
$$;
revoke execute on function :SCHEMA._private_make_history_partitions_v1(int, timestamptz) from public;

-- Does one step of forgetting the history before a moment, and returns what is left to do:
-- true if there may be another step. A partition is first detached, which takes a moment
-- in which no attempt can end, and then dropped, for which nobody waits. Rows in the
-- default partition are deleted, a few at a time.
create function :SCHEMA._private_drop_history_v1(before timestamptz, most int)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    last_day constant text := '_private_history_' || to_char((before at time zone 'UTC')::date, 'YYYYMMDD');
    name text;
    deleted int;
begin
    select class.relname into name
    from pg_class as class
    where class.relnamespace = ':SCHEMA'::regnamespace and class.relkind = 'r' and not class.relispartition
        and class.relname ~ '^_private_history_[0-9]{8}$' and class.relname < last_day
    order by class.relname limit 1;
    if found then
        execute format('drop table %s.%I', ':SCHEMA', name);
        return true;
    end if;
    select class.relname into name
    from pg_inherits as child
    join pg_class as class on class.oid = child.inhrelid
    where child.inhparent = ':SCHEMA._private_history'::regclass
        and class.relname ~ '^_private_history_[0-9]{8}$' and class.relname < last_day
    order by class.relname limit 1;
    if found then
        begin
            execute format('alter table %s detach partition %s.%I', ':SCHEMA._private_history', ':SCHEMA', name);
        exception when lock_not_available then
            return false;
        end;
        return true;
    end if;
    delete from only :SCHEMA._private_history_default as old
    where old.ctid = any (array(
        select each.ctid from only :SCHEMA._private_history_default as each
        where each.ended_at < before limit most));
    get diagnostics deleted = row_count;
    return deleted >= most;
end
$$;
revoke execute on function :SCHEMA._private_drop_history_v1(timestamptz, int) from public;

-- Does one step of indexing the history, and returns whether there may be another step:
-- a day that has been over for some minutes gets its B-trees, one at a time, and the BRIN
-- index of the other days is brought up to date.
create function :SCHEMA._private_index_history_v1(moment timestamptz default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    this_day constant text := '_private_history_' || to_char(
        (coalesce(moment, now()) - interval '10 minutes') at time zone 'UTC', 'YYYYMMDD');
    name text;
    suffix text;
    definition text;
    partition regclass;
    ranges regclass;
    block bigint;
begin
    select class.relname, wanted.suffix, wanted.definition into name, suffix, definition
    from pg_inherits as child
    join pg_class as class on class.oid = child.inhrelid
    cross join (values
        ('_job_id', '(job_id)'),
        -- The words of payloads. A text could be too long for the type, so only its beginning has entries.
        ('_payload', 'using gin (to_tsvector(''pg_catalog.simple'', "left"(payload, 20000))) where payload is not null'),
        -- The last of a day: a search relies on the others if it finds this one.
        ('_task', '(task_identifier, ended_at)')) as wanted(suffix, definition)
    where child.inhparent = ':SCHEMA._private_history'::regclass
        and class.relname ~ '^_private_history_[0-9]{8}$' and class.relname < this_day
        and to_regclass(format('%s.%I', ':SCHEMA', class.relname || wanted.suffix)) is null
    order by class.relname, wanted.suffix limit 1;
    if found then
        execute format('create index %I on only %s.%I %s', name || suffix, ':SCHEMA', name, definition);
        return true;
    end if;
    -- Only ranges of pages that are full, from the last one back to one that has a summary:
    -- a summary of the pages that are written now would slow the writers down.
    for partition in
        select class.oid::regclass
        from pg_inherits as child
        join pg_class as class on class.oid = child.inhrelid
        where child.inhparent = ':SCHEMA._private_history'::regclass
            and class.relname ~ '^_private_history_[0-9]{8}$' and class.relname >= this_day
    loop
        ranges := :SCHEMA._private_history_ranges(partition);
        block := pg_relation_size(partition) / current_setting('block_size')::bigint / 32 * 32 - 32;
        while block >= 0 loop
            exit when brin_summarize_range(ranges, block) = 0;
            block := block - 32;
        end loop;
    end loop;
    return false;
end
$$;
revoke execute on function :SCHEMA._private_index_history_v1(timestamptz) from public;
