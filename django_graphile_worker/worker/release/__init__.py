"""Ends claims: sends the outcome of each job to the database, until the database has accepted it.

Start reading in ``releaser.py``: it takes the outcomes, groups them in ``batches.py`` and sends them with
``statements.py``. ``worker/recording.py`` builds what is recorded of the attempts.
"""
