"""A worker process: from its plan to its exit code.

Start with ``start.py``: it takes a ``Plan`` and decides what to run (once, under --reload, one process, several).
``run_plan.py`` runs a plan, ``worker_process.py`` runs the runners and handles signals, ``runner_group.py`` builds,
starts and ends them. ``supervisor.py`` and ``child.py`` are for several processes, ``reloader.py`` is for --reload.

The folder may import ``worker.runner`` and everything below; only ``worker.entrypoints`` and ``management`` import it.
"""
