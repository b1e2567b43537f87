"""The benchmarks of this package, and of other queues beside it.

``python -m benchmarks --help`` lists them; docs/explanation/benchmarks.md says how to run them and how to read them.

``measures/``
    one module for each benchmark: what is measured.
``trivial_jobs/``, ``real_jobs/``
    the projects whose tasks the measured workers run.
``report.py``
    from the recorded figures to the tables of the documentation.
``results/``
    the recorded figures.

The other modules are what the measures share: start with ``session.py`` and ``draining.py``.
"""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
