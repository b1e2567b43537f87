"""The worker: claims jobs from the database, runs them, and releases them.

From the outside in; a module may import the modules below it, and never a module above it:

``entrypoints``     run_worker(), run_once() and Worker, for other code; ``worker_options``: their keyword arguments
``process/``        one process with its workers: system signals, exit code, several processes, health file
``runner``          the life of one worker: start, drain; ``shutdown``: the order in which its parts stop
``wiring``          builds the parts and connects them; ``part_callbacks``: what each part calls; ``parts``: the parts
``fetching/``       claims jobs when a notification, the clock or a free slot says so
``pool/``           the threads that run jobs; ``work_units``: the jobs that one thread takes at once
``delayed_start``   the start of a worker whose database is away
``execution/``      runs one job: its payload, middleware, task, result and errors
``release/``        ends claims: stores what became of each job
``maintenance/``    heartbeat, recovery of dead workers' jobs, crontab, checks of the schema
``reporting/``      signals for the site's code, statistics for the dashboard
``service``         the base class of every part that has a thread
``outcomes``        how a job's run ended; ``identity``: the worker's id; ``task_selection``: the tasks that it runs;
                    ``job_clock``: the clock by which jobs fall due
``database/``       the worker's own connections; ``django_connections/``: Django's connections, which tasks use
``typed_payloads/`` payloads as dataclasses and models
``stop_request``    the request to stop a worker; ``fork_guard``: ends processes that a task forked

The way of a job:

1. ``add_job()`` inserts a row, and PostgreSQL notifies the workers. A ``Listener`` wakes the ``Fetcher``.
2. The ``Fetcher`` claims the job with a statement of the ``Claimer``, which writes this worker's id and the number of
   the claim (the token) into the row, and gives it to the ``SlotPool`` as a ``WorkUnit``.
3. A thread of the pool asks ``Parts.may_begin()`` whether the claim is still this worker's, and has the ``Executor``
   run the job. The result is an outcome: ``Succeeded``, ``CompletedAtomically``, ``Failed`` or ``Interrupted``.
4. The ``Releaser`` stores the outcome, together with all others that arrived while its last statement ran. Each
   statement states the claim that it ends, so a claim that was lost meanwhile is not touched.

Other ways:

- A retry: for ``Failed`` the ``Releaser`` stores the error and the time of the next attempt, and reports that time to
  the ``Fetcher`` if it is soon.
- A crash: the ``Heartbeat`` of a dead worker stops, and the ``Recovery`` of another worker recovers its jobs. A worker
  that lives but lost its lease goes on under a new id, see ``Parts.lose_lease()``.
- A shutdown: ``Shutdown`` returns the jobs that have not begun, waits for the others, and returns what still runs after
  the grace period. Returned jobs get their attempt back.
"""
