"""The worker, which claims jobs from the database, runs them and releases them.

The modules, from the outside in. A module may import the modules below it, never a module above it:

``entrypoints``     run_worker(), run_once() and Worker, for other code; ``worker_options``: their keyword arguments
``process/``        one process with its workers: system signals, exit code, several processes, health file
``runner``          the life of one worker: start, drain; ``shutdown``: the order in which its parts stop
``wiring``          builds the parts and connects them; ``part_callbacks``: what each part calls; ``parts``: the parts
``late_parts``      builds the parts that few workers need, when they are first needed
``fetching/``       claims jobs after a notification, at a due time, or when a slot is free
``pool/``           the threads that run jobs; ``work_units``: the jobs that one thread takes at once
``control/``        stops one run of a job: at its deadline, or because the job was cancelled
``delayed_start``   the start of a worker whose database does not answer yet
``execution/``      runs one job: its payload, middleware, task, result and errors
``release/``        ends claims: stores the outcome of each job
``maintenance/``    heartbeat, recovery of dead workers' jobs, crontab, checks of the schema
``reporting/``      signals for the site's code, statistics for the dashboard
``service``         the base class of every part that has a thread
``outcomes``        how a job's run ended; ``identity``: the worker's id; ``task_selection``: the tasks that it runs;
                    ``job_clock``: the clock by which jobs fall due
``database/``       the worker's own connections; ``django_connections``: Django's connections, which tasks use
``typed_payloads/`` payloads as dataclasses and models
``stop_request``    the request to stop a worker; ``job_stop``: the request to stop one run of a job;
                    ``fork_guard``: ends processes that a task forked

How a job passes through these modules:

1. ``add_job()`` inserts a row, and PostgreSQL notifies the workers. A ``Listener`` wakes the ``Fetcher``.
2. The ``Fetcher`` claims the job with a statement of the ``Claimer``, which writes this worker's id and the number of
   the claim (the token) into the row. The ``Fetcher`` passes the job to the ``SlotPool`` as a ``WorkUnit``.
3. A thread of the pool checks with ``Parts.may_begin()`` that this worker still holds the claim, and the ``Executor``
   runs the job. The result is an outcome: ``Succeeded``, ``CompletedAtomically``, ``Failed`` or ``Interrupted``.
4. The ``Releaser`` stores the outcome, together with all outcomes that arrived while its last statement ran. Each
   statement names the token of the claim that it ends, so a claim that was lost meanwhile is not touched.

Other cases:

- A retry: for ``Failed`` the ``Releaser`` stores the error and the time of the next attempt, and reports that time to
  the ``Fetcher`` if it is soon.
- A crash: the ``Heartbeat`` of a dead worker stops, and the ``Recovery`` of another worker recovers its jobs. A worker
  that lives but lost its lease continues under a new id, see ``Parts.lose_lease()``.
- A shutdown: ``Shutdown`` returns the jobs that have not begun, waits for the others, and returns the jobs that still
  run after the grace period. The attempt of a returned job does not count.
"""
