"""A worker process: from its plan to its exit code.

Start with ``start.py``: it takes a ``Plan`` and decides what to run (once, under --reload, one process, several).
``main.py`` runs a plan, ``process.py`` runs the runners and handles signals, ``runners.py`` builds, starts and ends
them. ``supervisor.py`` and ``child.py`` are for several processes, ``reloader.py`` is for --reload.

The folder may import ``worker.runner`` and everything below; only ``worker.entrypoints`` and ``management`` import it.
"""
