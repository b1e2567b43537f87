/* gw:install */
-- How one job is added outside of a transaction, and how workers are notified of it. Of 64 clients that add jobs, most
-- neither notify nor take part in a notification; these clients only try two locks.

-- Notifies after the commit of a job, for a client that has found the first lock taken. A notification that is sent after
-- the commit of a job announces this job, whoever sends it. So only the holder of the second lock notifies: it waits for
-- the first lock and then for a millisecond, releases both, and then wakes as many workers of the original as may be
-- idle. These workers wake as many of their slots as a notification counts. Clients that find the second lock taken need
-- not notify. Without this, notifications would cost half of what 64 clients can add.
--
-- Every role may take these advisory locks, so nobody waits long for them. A role that takes both makes workers find the
-- jobs by polling, as it could by filling the queue of notifications. So does a request to cancel the statement of the
-- client on which others rely, if it arrives while the notification is committed: no handler can catch it.
create function :SCHEMA._private_notify_together_v2() returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $function$
/* gw:notify_together */
declare
  schema_id constant integer default ':SCHEMA'::pg_catalog.regnamespace::pg_catalog.oid::pg_catalog.int4;
begin
  -- A session that does not notify must not take the second lock: others rely on its holder.
  if pg_catalog.current_setting('graphile_worker.notify', true) operator(pg_catalog.=) 'off' then
    return;
  end if;
  -- The commit of a notification waits for a lock, too.
  if pg_catalog.current_setting('lock_timeout') operator(pg_catalog.<>) '0' then
    perform pg_catalog.set_config('lock_timeout', '0', true);
  end if;
  begin
    if not pg_catalog.pg_try_advisory_xact_lock(1735877231, schema_id) then
      return;
    end if;
    perform pg_catalog.set_config('lock_timeout', '100', true);
    perform pg_catalog.pg_advisory_xact_lock(1735877230, schema_id);
    perform pg_catalog.pg_sleep(0.001);
    -- Releases the locks before the notification is sent, and undoes the limit.
    raise query_canceled;
  exception when query_canceled or others then
    -- Also if a time limit of the session, or a request to cancel, has ended the wait.
    perform :SCHEMA._private_notify(64);
  end;
end
$function$;

-- Adds a job in a transaction of its own, and then notifies. A transaction that notifies holds a lock of the whole server
-- while it writes its commit to the disk, so that transactions that add and notify commit one after the other, however
-- many clients there are. The second transaction changes nothing and does not wait for the disk. A procedure that commits
-- cannot have a SET clause, so it names the schema of all that it uses.
--
-- A client that gets the second lock releases it and calls the function above, which takes it again. A client that has
-- found the lock taken meanwhile may rely on that call.
--
-- No error may follow the commit: the caller would believe that nothing was added. Only a request to cancel that arrives
-- during a commit is such an error. A time limit of the session that ends during the commit would be another, and no
-- handler can catch it. So a session with a limit notifies before the commit if no other client is about to notify.
-- Otherwise is_notified is false, and the caller calls the function above in a statement of its own.
create procedure :SCHEMA._private_insert_job_and_notify_v3(
  identifier text,
  payload json,
  inout job_id bigint,
  inout added_at timestamptz,
  inout is_notified boolean
) language plpgsql as $procedure$
/* gw:insert_job_and_notify */
declare
  schema_id constant integer default ':SCHEMA'::pg_catalog.regnamespace::pg_catalog.oid::pg_catalog.int4;
begin
  select :SCHEMA._private_insert_job_v1(identifier, payload, true), pg_catalog.now() into job_id, added_at;
  if pg_catalog.current_setting('statement_timeout') operator(pg_catalog.<>) '0'
    or pg_catalog.current_setting('lock_timeout') operator(pg_catalog.<>) '0'
    or pg_catalog.current_setting('transaction_timeout', true) operator(pg_catalog.<>) '0'
  then
    is_notified := pg_catalog.pg_try_advisory_xact_lock(1735877230, schema_id);
    if is_notified then
      perform :SCHEMA._private_notify(1);
    end if;
    return;
  end if;
  is_notified := true;
  commit;
  begin
    if pg_catalog.pg_try_advisory_xact_lock(1735877230, schema_id) then
      perform :SCHEMA._private_notify(1);
    elsif pg_catalog.current_setting('graphile_worker.notify', true) operator(pg_catalog.=) 'off' then
      null;
    elsif pg_catalog.pg_try_advisory_xact_lock(1735877231, schema_id) then
      raise query_canceled;
    end if;
  exception
    when query_canceled then
      is_notified := false;
    when others then
      raise warning 'Job % was added, but workers were not notified: %', job_id, sqlerrm;
  end;
  if not is_notified then
    is_notified := true;
    begin
      perform :SCHEMA._private_notify_together_v2();
    exception when query_canceled or others then
      raise warning 'Job % was added, but workers were not notified: %', job_id, sqlerrm;
    end;
  end if;
end
$procedure$;
