"""The names that jobs have: tasks, queues, keys, flags, errors and workers, for searches and for their completion.

Each look at names ends at a limit, and says whether it has seen all of them. Start reading with ``matching``. Imports
from ``sql`` only.
"""
