"""Runs one claimed job: from the claim to its outcome.

Start reading in ``executor``, then follow a job: ``job_run`` (its state), ``invoker`` (how its task is called, prepared
once per task), ``binding`` (its arguments), ``results`` (failures in what it returns), ``retry`` and ``error_text``
(what a failure stores). Around these are ``middleware``, ``atomic`` and ``time_limits`` (around the call of a task),
``task_helpers`` (what tasks use), ``coroutine_executor`` (the beginning and the end of async tasks), and the folders
``coroutines`` (async tasks) and ``stops`` (runs that are stopped).

Imports ``django_connections``, ``typed_payloads``, ``outcomes`` and ``fork_guard`` of the worker, and nothing that
fetches or releases jobs. Modules that most jobs do not need are imported late: each would delay the first job of a
worker.
"""
