"""Runs one claimed job: from the claim to its outcome.

Start reading in ``executor``, then follow a job: ``job_run`` (its state, and its stop), ``invoker`` (how its task is
called, prepared once per task), ``binding`` (its arguments), ``results`` (awaitables and failures in what it returns),
``retry`` (what a failure stores, and when the job runs again). Around these are ``middleware`` and ``atomic`` (around
the call of a task), ``helpers`` (what tasks use), and the event loop of async tasks: ``event_loop`` and
``coroutine_run`` (one coroutine on the loop, with the thread that waits for it).

Imports ``django_connections``, ``typed_payloads``, ``outcomes``, ``recording`` and ``fork_guard`` of the worker, and
nothing that fetches or releases jobs.
"""
