"""Runs one claimed job: from the claim to its outcome.

Start reading in ``executor``, then follow a job: ``job_run`` (its state, and its stop), ``invoker`` (how its task is
called, prepared once per task), ``binding`` (its arguments), ``results`` (awaitables and failures in what it returns),
``retry`` (what a failure stores, and when the job runs again). Around these are ``middleware`` and ``atomic`` (around
the call of a task), ``helpers`` (what tasks use), and ``event_loop`` (the event loop of async tasks, and the threads
that wait for it).

Imports ``django_connections``, ``typed_payloads``, ``outcomes``, ``recording`` and ``fork_guard`` of the worker, and
nothing that fetches or releases jobs.
"""
