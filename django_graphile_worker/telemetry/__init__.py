"""What other systems see of jobs and workers: metrics, traces, errors and alerts. Each module is off until asked for.

A module imports the library that it is built on, which is an extra of the package, so only code that was asked for
imports a module.
"""
