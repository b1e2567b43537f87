"""What a test asserts about the jobs in the queue, or about those that a block has added.

Start reading in ``queued_jobs.py``, which has ``jobs()`` and ``assert_enqueued()``. ``expectations.py`` compares a job
with what is expected, and describes the difference. No other module of ``testing`` is imported.
"""
