"""The operator's command, ``manage.py graphile_worker <verb>``.

``verbs/`` has a module for each verb. ``verb.py`` has their base class, ``console.py`` the output and the database of a
verb. ``arguments.py`` parses options; ``tables.py``, ``formatting.py`` and ``times.py`` format results;
``known_names.py`` checks names, and suggests others for mistyped names. The folder may import all layers below
``management``, also the worker. Start reading with ``verbs/jobs.py``.
"""
