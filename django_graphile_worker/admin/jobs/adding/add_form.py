"""The form that adds a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_graphile_worker.admin.jobs.forms import PayloadField, RunAtField, number_field, time_zone_help
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.job_options import (
    LARGEST_MAX_ATTEMPTS,
    LARGEST_PRIORITY,
    MAX_JOB_KEY_LENGTH,
    MAX_QUEUE_NAME_LENGTH,
    SMALLEST_PRIORITY,
    JobKeyMode,
    valid_flags,
)
from django_graphile_worker.suggestions import closest

MODES = [
    ("", gettext_lazy("Default of the task, or replace")),
    (JobKeyMode.REPLACE.value, gettext_lazy("replace: the new job replaces the waiting job")),
    (
        JobKeyMode.PRESERVE_RUN_AT.value,
        gettext_lazy("preserve_run_at: the new job replaces the waiting job, and keeps its time"),
    ),
    (
        JobKeyMode.UNSAFE_DEDUPE.value,
        gettext_lazy("unsafe_dedupe: no job is added if any job has the key, even a running or failed job"),
    ),
]


class TaskInput(forms.TextInput):
    """A text field that completes the names of tasks; each name is a choice with a short description."""

    list_id = "gw-task-names"

    def __init__(self) -> None:
        super().__init__(attrs={"list": self.list_id, "class": "vTextField", "autocomplete": "off"})
        self.choices: Mapping[str, str] = {}

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        options = format_html_join("", '<option value="{}">{}</option>', self.choices.items())
        field = super().render(name, value, attrs, renderer)
        return format_html('{}<datalist id="{}">{}</datalist>', field, self.list_id, options)


class TaskField(forms.CharField):
    """The name of a task that this site, a worker or a job has."""

    widget = TaskInput
    names: Iterable[str] = ()

    def clean(self, value: Any) -> str:
        name = str(super().clean(value))
        if name in self.names:
            return name
        close = closest(name, self.names)
        message = (
            _("Expected the name of a task, got “%(name)s”. Did you mean “%(close)s”?")
            if close
            else _("Expected the name of a task of this site, of a worker or of a job, got “%(name)s”.")
        )
        raise forms.ValidationError(message % {"name": name, "close": close})


class AddJobForm(forms.Form):
    """A task, a payload in JSON, and every option of a job."""

    task = TaskField(label=gettext_lazy("Task"))
    payload = PayloadField(
        label=gettext_lazy("Payload"),
        required=False,
        strip=False,
        help_text=gettext_lazy("JSON. Default: {}"),
    )
    queue_name = forms.CharField(
        label=gettext_lazy("Queue"),
        required=False,
        max_length=MAX_QUEUE_NAME_LENGTH,
        help_text=gettext_lazy("The jobs of a queue run one after another. Default: the queue of the task."),
    )
    run_at = RunAtField(
        label=gettext_lazy("Run at"),
        required=False,
        help_text=format_lazy("{} {}", gettext_lazy("Default: now."), time_zone_help()),
    )
    priority = number_field(
        gettext_lazy("Priority"),
        SMALLEST_PRIORITY,
        LARGEST_PRIORITY,
        help_text=gettext_lazy("Lower numbers run first."),
    )
    max_attempts = number_field(gettext_lazy("Maximum attempts"), 1, LARGEST_MAX_ATTEMPTS)
    job_key = forms.CharField(
        label=gettext_lazy("Job key"),
        required=False,
        max_length=MAX_JOB_KEY_LENGTH,
        help_text=gettext_lazy("At most one job has a key."),
    )
    job_key_mode = forms.ChoiceField(
        label=gettext_lazy("Job key mode"),
        required=False,
        choices=MODES,
        help_text=gettext_lazy(
            "What happens if a job with this key exists. Warning: with unsafe_dedupe the work may never be done: "
            "a job that is running or has failed is kept instead of the new job."
        ),
    )
    flags = forms.CharField(label=gettext_lazy("Flags"), required=False, help_text=gettext_lazy("Separated by commas."))

    def __init__(
        self,
        *args: Any,
        tasks: Mapping[str, str],
        hides_payload: bool = False,
        deletes: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if deletes is not None:
            # The id of a failed job: its duplicate can take its place.
            label = _("And delete #%(id)s") % {"id": deletes}
            self.fields["delete_original"] = forms.BooleanField(label=label, required=False)
        field: Any = self.fields["task"]
        field.names = field.widget.choices = tasks
        if hides_payload:
            # Another task could show the payload, in its error for example.
            field.disabled = True
            del self.fields["payload"]

    def clean_flags(self) -> list[str] | None:
        names = [name.strip() for name in self.cleaned_data["flags"].split(",") if name.strip()]
        try:
            return list(valid_flags(names) or ()) or None
        except GraphileWorkerError as error:
            raise forms.ValidationError(str(error)) from None

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of add_job."""
        names = ("queue_name", "run_at", "max_attempts", "job_key", "job_key_mode", "priority", "flags")
        return {name: self.cleaned_data[name] if self.cleaned_data[name] != "" else None for name in names}
