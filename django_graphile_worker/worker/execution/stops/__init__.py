"""The stop of a run, on the side of the run: ``helpers.abort``, and the exception that stops a task.

Start with ``stop_of_run``, which the thread that runs the job shares with ``worker/control``, the side that stops it.
``stopped_runs`` makes the error of a run that was stopped, ``abort`` is what a task sees of a stop. The folder may
import ``outcomes`` and ``job_stop`` of the worker, and nothing beside it.
"""
