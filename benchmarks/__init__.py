"""The benchmarks of this package, and of other queues beside it.

``python -m benchmarks --help`` lists them; docs/explanation/benchmarks.md says how to run them and how to read them.

``measures/``
    one module for each benchmark: what is measured.
``peers/``
    one folder for each queue that is measured: how it is installed, started and counted.
``real_jobs/``
    the Django project whose tasks all queues run.
``report/``
    from the recorded samples to the tables and plots of the documentation.
``results/``
    the recorded samples of the published figures.

The modules beside this file are what the measures share: start with ``session.py`` and ``draining.py``.
"""
