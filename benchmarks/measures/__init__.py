"""One module for each benchmark. ``measure(session)`` measures, prints its tables and records them.

The first line of the module's docstring is what ``python -m benchmarks --help`` shows.
"""
