"""Recurring tasks: items, their text form, and their times. Text and time in, values out."""

from __future__ import annotations

from django_graphile_worker.crontab.describe import describe
from django_graphile_worker.crontab.draft import Draft, parse_cron_items, parse_crontab
from django_graphile_worker.crontab.errors import CrontabMistake
from django_graphile_worker.crontab.items import CronItem
from django_graphile_worker.crontab.timetable import Timetable, occurrences, upcoming
from django_graphile_worker.crontab.writer import format_item

__all__ = [
    "CronItem",
    "CrontabMistake",
    "Draft",
    "Timetable",
    "describe",
    "format_item",
    "occurrences",
    "parse_cron_items",
    "parse_crontab",
    "upcoming",
]
