"""Schedules as pure functions: when a schedule is due, and what to do with the ticks that passed.

The folder imports neither Django nor psycopg, and reads no clock. Cron lines are those of ``crontab``, with the same
rules for time changes. Start reading with ``times``.
"""

from __future__ import annotations
