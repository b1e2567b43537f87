"""Limited jobs: sorts them into lanes, claims them into free slots, and frees their places when they end.

Start reading with ``limited_work``, which has the parts of this folder; ``keeper`` is the service that sorts, and
``claimer`` shares the free slots between limited and ordinary jobs. ``sql/ddl/tables.sql`` describes the tables. A
worker whose tasks have no limits makes none of these parts.
"""
