"""How a worker gets jobs: it waits for them, claims them, and fills the pool.

Start with ``fetcher``, the loop. ``claimer`` claims, and ``scan`` knows where in the backlog; ``prefetch`` decides how
many; ``listener`` waits, and ``wakeup`` ends its wait; ``fast_path`` starts the single due job of an idle worker. A
claim needs ``task_directory``, ``forbidden_flags`` and ``held_claims``. ``preconnect`` and ``installation_check``
belong to the start. The folder imports the pool, work units and the modules below them; ``fetcher.FetchEvents`` and
``listener.ListenEvents`` list what it calls in other parts.
"""
