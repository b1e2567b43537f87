"""Limits: how many jobs of a key may run at once, how many may start in a time, and which keys take turns.

A *limit* (``limit.Limit``) has numbers, and a key: a template or a function that makes the *key text* of a job from its
payload. All jobs whose key text is the same share the numbers, in all tasks that have a limit with the same name.

A worker needs two functions: ``keys.keys_of()`` returns the pairs (name of a limit, key text) of a job, and
``definitions.definitions()`` the numbers of every limit after the setting ``LIMITS``. Numbers that an operator stored
in the database replace both; ``sql.limits`` reads and writes them.

The folder may import ``exceptions``, ``job_options`` and the layers below them: no Django, no database. A process whose
tasks have no limits never loads it. Start reading with ``limit``.
"""
