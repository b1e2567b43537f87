"""Crontabs: turns text and items into checked items, and computes the times at which items are due.

The folder is pure: it imports neither Django nor psycopg, and reads no clock. Start reading with ``items`` (one
recurring task), then ``parser`` (a crontab from several sources). Functions named ``read_…`` report mistakes to a
``MistakeCollector`` and continue; functions named ``parse_…`` raise one ``CrontabError`` with every mistake.
"""

from __future__ import annotations

from django_graphile_worker.crontab.describe import describe
from django_graphile_worker.crontab.errors import CrontabMistake
from django_graphile_worker.crontab.items import CronItem, occurrences, upcoming
from django_graphile_worker.crontab.parser import Draft, format_item, parse_cron_items, parse_crontab

__all__ = [
    "CronItem",
    "CrontabMistake",
    "Draft",
    "describe",
    "format_item",
    "occurrences",
    "parse_cron_items",
    "parse_crontab",
    "upcoming",
]
