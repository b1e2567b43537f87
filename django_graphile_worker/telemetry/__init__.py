"""What other systems see of jobs and workers: metrics, traces, errors and alerts. Each module is off until asked for.

A module imports the library that it is built on, which is an extra of the package, so only code that was asked for
imports a module.
"""

from __future__ import annotations

# What is shown where the package prometheus-client is missing.
NO_PROMETHEUS = 'The package prometheus-client is missing: pip install "django-graphile-worker[prometheus]"'
