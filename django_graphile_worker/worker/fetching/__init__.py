"""How a worker gets jobs: it waits for them, claims them, and fills the pool.

Start with ``fetcher``, the loop. ``claimer`` claims, and ``scan`` knows where in the backlog; ``demand`` decides how
many jobs, and for how many slots; ``listener`` waits; ``fast_path`` starts the single due job of an idle worker. A
claim needs ``task_directory``, ``forbidden_flags`` and ``held_claims``.
"""
