"""The forms of the actions, and fields that several forms have."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.functional import lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_graphile_worker import conf
from django_graphile_worker.exceptions import GraphileWorkerError, PayloadError
from django_graphile_worker.job_options import (
    valid_run_at,
)
from django_graphile_worker.payloads import encode


class DateTimeLocalInput(forms.DateTimeInput):
    """The date and time picker of the browser."""

    input_type = "datetime-local"

    def __init__(self) -> None:
        super().__init__(attrs={"step": "1"}, format="%Y-%m-%dT%H:%M:%S")


class RunAtField(forms.DateTimeField):
    """A date and time that a job can run at."""

    widget = DateTimeLocalInput

    def clean(self, value: Any) -> Any:
        run_at = super().clean(value)
        try:
            return valid_run_at(run_at)
        except GraphileWorkerError as error:
            raise forms.ValidationError(str(error)) from None


def _time_zone_help() -> str:
    """Return the time zone of the field: the picker shows none, and the user's may differ from the site's."""
    values = {"zone": timezone.get_current_timezone_name(), "time": f"{timezone.localtime():%H:%M}"}
    return _("In the time zone %(zone)s, where it is %(time)s now.") % values


time_zone_help = lazy(_time_zone_help, str)


def number_field(label: Any, smallest: int, largest: int, **options: Any) -> forms.IntegerField:
    return forms.IntegerField(label=label, required=False, min_value=smallest, max_value=largest, **options)


class FailForm(forms.Form):
    """The reason for failing jobs permanently."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=2_000,
        help_text=gettext_lazy("Added to the last error."),
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )


class CancelForm(forms.Form):
    """The reason for cancelling jobs."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=2_000,
        help_text=gettext_lazy("Kept with your name in the results and the history."),
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )


class PayloadField(forms.CharField):
    """JSON text, which is decoded."""

    widget = forms.Textarea(attrs={"rows": 10, "cols": 80, "class": "gw-code", "spellcheck": "false"})

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return None
        try:
            payload = json.loads(text)
            encode(payload, max_size=conf.current().max_payload_size)
        except json.JSONDecodeError as error:
            raise forms.ValidationError(_invalid_json(text, error)) from None
        except PayloadError as error:
            raise forms.ValidationError(str(error)) from None
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(_("Expected JSON that can be read back, got: %s.") % error) from None
        return payload


def _invalid_json(text: str, error: json.JSONDecodeError) -> str:
    return _("Expected JSON, got %(got)s at line %(line)s, column %(column)s: %(problem)s.") % {
        "got": repr(text[error.pos : error.pos + 20]) if error.pos < len(text) else _("the end"),
        "line": error.lineno,
        "column": error.colno,
        "problem": error.msg,
    }


class EditForm(forms.Form):
    """The payload of a failed job that is retried."""

    payload = PayloadField(
        label=gettext_lazy("Payload"), required=False, strip=False, help_text=gettext_lazy("JSON. Default: {}")
    )
    # The revision of the job that the form shows: a later one has another payload.
    revision = forms.IntegerField(widget=forms.HiddenInput)

    def clean_payload(self) -> Any:
        payload = self.cleaned_data["payload"]
        return {} if payload is None and not self.data.get("payload", "").strip() else payload
