"""The operator's command, ``manage.py graphile_worker <verb>``.

``verbs/`` has the verbs, a module for each subject. ``verb.py`` has their base class, ``console.py`` the output and the
database of a verb. ``arguments.py`` parses options, ``formatting.py`` formats results, and ``lookups.py`` checks names
and suggests others for mistyped names. The folder may import all layers below ``management``, also the worker. Start
reading with ``verbs/jobs.py``.
"""
