"""The actions on schedules: what each does, who may take it, its buttons and its entries in the log.

Start reading with ``schedule_actions``, the table of all actions. ``admin.schedules.actions_view`` is their view.
"""
