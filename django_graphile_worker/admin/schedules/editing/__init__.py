"""The form that adds and changes a schedule, its check while the user types, and the history of its changes.

Start reading with ``form_view``. ``schedule_form`` has the fields of every schedule, ``payload_form`` those of its
payload: ``payload_shape`` reads what the task takes, ``payload_fields`` has a form field for each type.
"""
