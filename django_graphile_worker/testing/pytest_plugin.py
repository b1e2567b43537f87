"""The plugin under the name of its former entry point, for environments that were installed before it moved."""

from __future__ import annotations

from django_graphile_worker.pytest_plugin import immediate_jobs, job_clock, pytest_collection_finish

__all__ = ["immediate_jobs", "job_clock", "pytest_collection_finish"]
