"""Reports what a worker does: signals for the site's receivers, and counts for the dashboard.

Imports ``sql``, ``signals``, ``worker.service``, ``worker.outcomes``, ``worker.database`` and
``worker.django_connections``, and no other folder of the worker. Start reading in ``events.py``, whose signals
``signal_sender.py`` sends. ``statistics_buffer.py`` counts outcomes in memory, ``statistics_recorder.py`` writes the
counts to the database.
"""
