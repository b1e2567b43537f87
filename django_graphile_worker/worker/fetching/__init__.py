"""How jobs come to a worker: it waits for them, claims them, and fills the pool.

Start with ``fetcher``, the loop. ``claimer`` claims; ``prefetch`` says how many; ``listener`` waits, and ``wakeup``
ends its wait; ``fast_path`` starts the lone job of an idle worker. What a claim has to know has homes of its own:
``task_directory``, ``forbidden_flags``, ``held_claims`` and ``blocked_jobs``. ``preconnect`` and
``installation_check`` belong to the start. The folder imports the pool, work units and what is below them; what it
calls in other parts is in ``fetcher.FetchEvents``.
"""
