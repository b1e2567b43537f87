"""The commands: ``runworker`` (the worker) and ``graphile_worker`` (the operator's verbs).

``options.py`` has the options of a worker for both commands, and makes a plan of them, which
``worker/process/start.py`` carries out. ``operator/`` has the verbs. This is the top layer: no other module imports it.
"""
