"""The pool of threads that run jobs, and the few claimed jobs that wait for one of them.

Start with ``slot_pool``, which the fetcher fills. ``threads`` starts threads and lets them rest, ``turns`` has them
run the fetcher in turns, ``totals`` counts. The folder knows work units and outcomes, and nothing of the parts above
it: what it calls is in ``slot_pool.PoolEvents``.
"""
