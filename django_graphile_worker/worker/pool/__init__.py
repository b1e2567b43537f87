"""The pool of threads that run jobs, and the few claimed jobs that wait for one of them.

Start with ``slot_pool``, which the fetcher fills. ``threads`` starts threads and lets them rest, ``fetch_turns`` has
them run the fetcher in turns, ``totals`` counts. ``slot_counts`` answers what other parts ask, ``coroutine_pool`` and
``coroutine_slots`` have the jobs that run without a thread. The folder imports work units and outcomes, and no part
above it: ``events.PoolEvents`` lists what it calls there.
"""
