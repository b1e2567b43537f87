"""The commands: ``runworker`` (the worker) and ``graphile_worker`` (the operator's verbs).

``arguments.py`` has the types of the arguments of both, ``operator/`` the verbs. This is the top layer: no other module
imports it.
"""
