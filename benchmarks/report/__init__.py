"""From recorded samples to text for a terminal, and to the tables and plots of the documentation.

``python -m benchmarks.report`` (``make figures``) writes the documentation; start reading in ``__main__.py``.
"""
