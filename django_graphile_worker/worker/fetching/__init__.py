"""How a worker gets jobs: it waits for them, claims them, and fills the pool.

Start with ``fetcher``, the loop, which decides how many jobs to claim, and for how many slots. ``claimer`` claims, and
``scan`` knows where in the backlog; ``claimable`` has the tasks and flags that a claim names; ``listener`` waits.
"""
