"""Statements of schedules: read what is due, fire it, run it by hand, and note who changes what.

Start reading in ``firing.py``. ``ddl/tables.sql`` describes the tables.
"""
