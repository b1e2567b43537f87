"""The operator's command, ``manage.py graphile_worker <verb>``.

``verbs.py`` lists the verbs, which are in a module for each subject. ``verb.py`` has their base class and the types of
their arguments, ``console.py`` the output and the database of a verb, and ``formatting.py`` formats results. The folder
may import all layers below ``management``, also the worker. Start reading with ``jobs.py``.
"""
