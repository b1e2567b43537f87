"""The page of schedules: list, form, history of changes, and actions.

Start reading with ``schedule_admin``. ``permissions`` decides who may change what.
"""
