"""Events as sentences, for the admin, which translates them and adds links, and for the command line.

Start reading with ``sentences``, which has the function for each kind of event. The folder imports
``sql.inspection.events`` for the type of an event, and Django's translations.
"""
