"""The operator's command, ``manage.py graphile_worker <verb>``.

``verbs/`` has a module for each verb. ``verb.py`` is their base class, ``console.py`` what they write to and read from,
``arguments.py`` parses options, ``tables.py``, ``formatting.py`` and ``times.py`` format results, ``known_names.py``
answers mistyped names. Everything below ``management`` may be imported, the worker too. Start with ``verbs/jobs.py``.
"""
