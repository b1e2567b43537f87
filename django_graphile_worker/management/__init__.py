"""The commands: ``runworker`` (the worker) and ``graphile_worker`` (the operator's verbs).

``worker_command.py`` is the command of the worker, ``options.py`` has its options and makes a plan of them, which
``worker/process/start.py`` carries out. ``operator/`` has the verbs. This is the top layer: no other module imports it.
"""
