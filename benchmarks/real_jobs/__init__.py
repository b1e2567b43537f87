"""A Django project with tasks as people write them. Each queue of ``benchmarks/peers`` runs the same functions.

``shop/work.py`` has the functions, ``http_server.py`` is the server that two of them call.
"""
