"""Schedules that people and programs define in the database."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_graphile_worker.model_fields import TimestampField
from django_graphile_worker.models.tables import table


class Schedule(models.Model):
    """A recurring or single task that people and programs define in the database.

    Exactly one of ``cron``, ``interval`` and ``run_at`` tells when it fires. The fields after ``changed_by`` belong to
    the database and the workers: what is saved in them is ignored.
    """

    class Missed(models.TextChoices):
        SKIP = "skip", _("Skip them")
        ONCE = "once", _("Run once")
        ALL = "all", _("Run all of them within a time")

    class Overlap(models.TextChoices):
        ALLOW = "allow", _("Run both")
        SKIP = "skip", _("Skip the new run")
        QUEUE = "queue", _("Run one after the other")

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(_("name"), max_length=200, unique=True)
    task = models.CharField(_("task"), max_length=128)
    payload = models.JSONField(_("payload"), default=dict, blank=True)
    cron = models.TextField(_("cron line"), null=True, blank=True)  # noqa: DJ001 - null if it is not a cron line
    interval = models.DurationField(_("interval"), null=True, blank=True)
    run_at = models.DateTimeField(_("run at"), null=True, blank=True)
    time_zone = models.CharField(_("time zone"), max_length=64, default="UTC")
    starts_at = models.DateTimeField(_("starts at"), null=True, blank=True)
    ends_at = models.DateTimeField(_("ends at"), null=True, blank=True)
    queue_name = models.TextField(_("queue"), null=True, blank=True)  # noqa: DJ001 - null: what the task says
    priority = models.SmallIntegerField(_("priority"), null=True, blank=True)
    max_attempts = models.SmallIntegerField(_("maximum attempts"), null=True, blank=True)
    job_key = models.TextField(_("job key"), null=True, blank=True)  # noqa: DJ001 - null: what the task says
    missed = models.CharField(_("missed times"), max_length=4, choices=Missed, default=Missed.SKIP)
    missed_within = models.DurationField(_("missed within"), null=True, blank=True)
    overlap = models.CharField(_("overlap"), max_length=5, choices=Overlap, default=Overlap.ALLOW)
    is_enabled = models.BooleanField(_("enabled"), default=True)
    paused_until = models.DateTimeField(_("paused until"), null=True, blank=True)
    description = models.TextField(_("description"), default="", blank=True)
    changed_by = models.TextField(_("changed by"), default="", editable=False)
    created_at = models.DateTimeField(null=True, editable=False)
    changed_at = models.DateTimeField(null=True, editable=False)
    revision = models.IntegerField(null=True, editable=False)
    anchor_at = models.DateTimeField(null=True, editable=False)
    counts_from = models.DateTimeField(null=True, editable=False)
    next_at = TimestampField(null=True, editable=False)
    last_tick = models.DateTimeField(null=True, editable=False)
    last_job_id = models.BigIntegerField(null=True, editable=False)
    last_missed_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        managed = False
        db_table = table("_private_schedules")
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        permissions = [
            ("run_schedule", "Can run schedules now"),
            ("pause_schedule", "Can pause and resume schedules"),
        ]

    def __str__(self) -> str:
        return self.name
