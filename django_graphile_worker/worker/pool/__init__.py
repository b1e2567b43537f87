"""The pool of threads that run jobs, and the few claimed jobs that wait for one of them.

Start with ``pool``, which the fetcher fills. ``threads`` starts threads, lets them rest, and has them run the fetcher
in turns; ``line`` is what waits, as work units.
"""
