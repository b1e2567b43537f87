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

from django_graphile_worker.admin.jobs.forms import PayloadField, RunAtField, time_zone_help
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.job_options import OPTIONS, JobOption, Kind
from django_graphile_worker.text import closest


class FlagsField(forms.CharField):
    """Texts separated by commas."""

    def clean(self, value: Any) -> list[str]:
        return [text.strip() for text in super().clean(value).split(",") if text.strip()]


class HeadersField(forms.JSONField):
    """Names with values, as a JSON object; empty without any."""

    widget = forms.TextInput

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


def option_field(option: JobOption) -> forms.Field:
    """Return the field of a form for an option of a job."""
    shared: dict[str, Any] = {"label": option.label, "required": False, "help_text": option.help_text}
    match option.kind:
        case Kind.NUMBER:
            return forms.IntegerField(**shared, min_value=option.smallest, max_value=option.largest)
        case Kind.TIME:
            return RunAtField(**shared | {"help_text": format_lazy("{} {}", option.help_text, time_zone_help())})
        case Kind.CHOICE:
            default = format_lazy(gettext_lazy("Default of the task, or {default}"), default=option.default)
            return forms.ChoiceField(**shared, choices=[("", default), *option.choices])
        case Kind.TEXTS:
            return FlagsField(**shared)
        case Kind.PAIRS:
            return HeadersField(**shared)
        case Kind.TEXT:
            return forms.CharField(**shared, max_length=option.max_length)


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
            _("There is no task “%(name)s”. Did you mean “%(close)s”?")
            if close
            else _("There is no task “%(name)s” in this project, in a worker or in a job.")
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

    def __init__(
        self,
        *args: Any,
        tasks: Mapping[str, str],
        hides_payload: bool = False,
        deletes: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.fields |= {name: option_field(option) for name, option in OPTIONS.items()}
        if deletes is not None:
            # The id of a failed job: its duplicate can take its place.
            label = _("And delete #%(id)s") % {"id": deletes}
            self.fields["delete_original"] = forms.BooleanField(label=label, required=False)
        field: Any = self.fields["task"]
        field.names = field.widget.choices = tasks
        if hides_payload:
            # Another task could show the payload, in its error for example.
            field.disabled = True
            del self.fields["payload"], self.fields["headers"]

    def clean(self) -> dict[str, Any]:
        """Check the options as add_job() does."""
        cleaned: dict[str, Any] = super().clean() or {}
        for name, option in OPTIONS.items():
            value = cleaned.get(name)
            try:
                cleaned[name] = None if value in ("", [], {}) else option.check(value)
            except GraphileWorkerError as error:
                self.add_error(name, str(error))
        return cleaned

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of add_job."""
        return {name: self.cleaned_data[name] for name in OPTIONS}
