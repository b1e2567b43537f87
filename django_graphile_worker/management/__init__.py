"""The commands: ``runworker`` (the worker) and ``graphile_worker`` (the operator's verbs).

``worker_command.py`` has the command of the worker. ``options.py`` has its options and turns them into a plan, which
``worker/process/start.py`` executes. ``operator/`` has the verbs. This is the top layer: no other module imports it.
"""
