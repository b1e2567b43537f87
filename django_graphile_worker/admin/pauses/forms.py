"""The form that pauses something."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from django_graphile_worker.admin.jobs.forms import DateTimeLocalInput, time_zone_help
from django_graphile_worker.job_options import MAX_INDEXED_FLAG_LENGTH
from django_graphile_worker.sql.control import PauseKind

LONGEST_REASON = 1_000


class PauseForm(forms.Form):
    """What to pause, until when, and why."""

    kind = forms.ChoiceField(
        label=gettext_lazy("Pause"),
        choices=[
            (PauseKind.QUEUE.value, gettext_lazy("a queue")),
            (PauseKind.TASK.value, gettext_lazy("a task")),
            (PauseKind.FLAG.value, gettext_lazy("all jobs with a flag")),
        ],
    )
    name = forms.CharField(label=gettext_lazy("Name"), max_length=MAX_INDEXED_FLAG_LENGTH, strip=False)
    until = forms.DateTimeField(
        label=gettext_lazy("Until"), required=False, widget=DateTimeLocalInput, help_text=time_zone_help()
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=LONGEST_REASON,
        help_text=gettext_lazy("Every page of the queue shows it."),
    )
    create = forms.BooleanField(
        label=gettext_lazy("Also if it is unknown"),
        required=False,
        help_text=gettext_lazy("For a queue or a task whose first job is still to be added."),
    )

    def target(self) -> dict[str, Any]:
        """Return the argument of the API that names what is paused."""
        return {self.cleaned_data["kind"]: self.cleaned_data["name"]}
