"""Control over running work: what an operator or a call of the API asks of the workers, and the end of running jobs.

The folder imports nothing of the other parts of the worker. Start with ``control_reader.py``.
"""
