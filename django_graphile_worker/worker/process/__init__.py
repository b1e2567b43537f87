"""A worker process: from its plan to its exit code.

Begin with ``start.py``: it takes a ``Plan`` (``plan.py``) and decides what to run. ``worker_process.py`` builds, runs
and ends the runners of one process, ``signal_handlers.py`` turns signals into stop requests. ``supervisor.py`` is for
several processes, ``recycling.py`` has a process replaced before it reaches a limit, ``health.py`` reports that a
process is healthy, ``systemd.py`` tells systemd, and ``reloader.py`` is for ``--reload``.

The folder may import ``worker.runner`` and everything below; only ``worker.entrypoints`` and ``management`` import it,
and the app configuration ``beside_runserver.py``.
"""
