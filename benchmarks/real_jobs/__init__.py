"""A Django app with tasks as people write them. Each queue of ``benchmarks/peers.py`` runs the same functions.

``work.py`` has the functions, ``http_server.py`` is the server that two of them call. A module with the name of a queue
makes them tasks of it; it runs in the environment of the peers, as ``client.py`` and ``settings.py`` do. The tables are
created without migrations.
"""
