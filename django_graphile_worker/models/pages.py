"""Models of the admin: its pages, which are proxies without a table of their own, and the views that users saved.

A page is a model because it needs permissions and an entry in the index.
"""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from django_graphile_worker.models.tables import Job, JobQueue, KnownCrontab, Worker


class Overview(Job):
    """The overview page."""

    class Meta:
        proxy = True
        verbose_name = _("overview")
        verbose_name_plural = _("overview")
        default_permissions = ("view",)


class ErrorGroup(Job):
    """The page of errors: jobs that fail in the same way."""

    class Meta:
        proxy = True
        verbose_name = _("error")
        verbose_name_plural = _("errors")
        default_permissions = ("view",)


class PastAttempt(Job):
    """The page of history: a row for each attempt that has ended, also of jobs that are deleted."""

    class Meta:
        proxy = True
        verbose_name = _("past attempt")
        verbose_name_plural = _("history")
        default_permissions = ("view",)


class PausedWork(JobQueue):
    """The page of pauses: queues, tasks and flags whose jobs wait."""

    class Meta:
        proxy = True
        verbose_name = _("pause")
        verbose_name_plural = _("pauses")
        default_permissions = ("view",)
        permissions = [("pause_work", "Can pause and resume queues, tasks and flags")]


class Event(Worker):
    """The page of events: what happened to workers, schedules, pauses and the database."""

    class Meta:
        proxy = True
        verbose_name = _("event")
        verbose_name_plural = _("events")
        default_permissions = ("view",)
        permissions = [("dismiss_event", "Can dismiss alarms about events")]


class LimitKey(Job):
    """The page of limits: the keys whose jobs wait for a place or for time."""

    class Meta:
        proxy = True
        verbose_name = _("limit key")
        verbose_name_plural = _("limits")
        default_permissions = ("view",)
        permissions = [("override_limit", "Can change the numbers of limits")]


class RecurringTask(KnownCrontab):
    """The items of the crontab, which are on the page of schedules: the permissions to see, run and pause them."""

    class Meta:
        proxy = True
        verbose_name = _("recurring task")
        verbose_name_plural = _("recurring tasks")
        default_permissions = ("view",)
        permissions = [
            ("run_recurringtask", "Can run recurring tasks now"),
            ("pause_recurringtask", "Can pause and resume recurring tasks"),
        ]
