"""The log lines of workers, written by receivers of the signals.

``receivers`` has the line of each signal. ``lines`` turns arguments into text and record attributes, and ``errors``
turns errors into text. ``console`` is the log of ``runworker`` on standard error, ``structured`` what a project names
in its ``LOGGING``. The folder may import the signals and everything below them.
"""

from __future__ import annotations

from django_graphile_worker.logs.structured import JobFilter, JSONFormatter

__all__ = ["JSONFormatter", "JobFilter"]
