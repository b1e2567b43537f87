"""A schedule as a user edits it: the form of the schedule, and the form of its payload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.utils.translation import gettext as _

from django_graphile_worker.admin.schedules.editing.payload_form import (
    PREFIX,
    PayloadForm,
    fields_of,
    is_shown_by,
    payload_form,
)
from django_graphile_worker.admin.schedules.editing.preview import Preview, preview_of, preview_of_schedule
from django_graphile_worker.admin.schedules.editing.schedule_form import ScheduleForm
from django_graphile_worker.models import Schedule

# What the page says about its payload fields: the task that they are for, and whether they are JSON.
PAYLOAD_OF, PAYLOAD_AS = "payload_of", "payload_as"
AS_JSON, AS_FIELDS = "json", "fields"


class Draft:
    """The two forms of the page. ``payload_form`` is None if the user may not see the payload, or chose no task yet."""

    def __init__(
        self,
        data: Any,
        *,
        tasks: Mapping[str, str],
        schedule: Schedule | None = None,
        hides_payload: bool = False,
        initial: Mapping[str, Any] | None = None,
        is_taken: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self.schedule = schedule
        self.hides_payload = hides_payload
        self.form = ScheduleForm(data, tasks=tasks, schedule=schedule, initial=initial, is_taken=is_taken)
        self.task = str(self.form["task"].value() or "")
        self._data = data
        self._is_known = self.task in tasks
        self.has_tasks = bool(tasks)
        self.payload_form = self._payload_form()

    def _payload_form(self) -> PayloadForm | None:
        if self.hides_payload or not self._is_known:
            return None
        if self._data is None or not self.has_fields_of_task:
            return payload_form(None, task=self.task, payload=self._stored_payload())
        as_json = self._data.get(PAYLOAD_AS) == AS_JSON
        return payload_form(self._data, task=self.task, payload={}, as_json=as_json)

    def _stored_payload(self) -> Mapping[str, Any]:
        is_same_task = self.schedule is not None and self.schedule.task == self.task
        return self.schedule.payload if self.schedule is not None and is_same_task else {}

    @property
    def has_fields_of_task(self) -> bool:
        """Whether the payload fields that the browser has sent are those of the task that it has sent."""
        return self._data is not None and self._data.get(PAYLOAD_OF) == self.task

    @property
    def can_have_fields(self) -> bool:
        """Whether the payload of the task has fields, beside JSON."""
        shape = fields_of(self.task) if self._is_known else None
        return shape is not None and bool(shape.arguments)

    def show_payload(self, payload: Mapping[str, Any], *, as_json: bool) -> None:
        """Replace the payload form by one that shows a payload."""
        self.payload_form = payload_form(None, task=self.task, payload=payload, as_json=as_json)

    def switch(self, way: str) -> str:
        """Show the payload as JSON or as fields; return what prevents it, or nothing."""
        form = self.payload_form
        if form is None:
            return ""
        payload: Mapping[str, Any] = form.payload if form.is_valid() else {}
        if way == AS_JSON:
            self.show_payload(payload, as_json=True)
            return ""
        shape = fields_of(self.task)
        if shape is None or not form.is_valid() or not is_shown_by(shape, payload):
            return _("The fields of the task cannot show this payload: it has errors, or other keys or values.")
        self.show_payload(payload, as_json=False)
        return ""

    def is_valid(self) -> bool:
        """Return whether both forms can be saved."""
        is_valid = self.form.is_valid()
        if self.payload_form is None:
            return is_valid
        if not self.has_fields_of_task:
            self.form.add_error("task", _("The payload of another task has other fields: fill them in, then save."))
            return False
        return self.payload_form.is_valid() and is_valid

    def values(self) -> dict[str, Any]:
        """Return the fields of the schedule. Its payload is left out if the user may not see it."""
        payload = {} if self.payload_form is None else {"payload": self.payload_form.payload}
        return {**self.form.values(), **payload}

    def preview(self) -> Preview | None:
        """Return what the form says about the times; before it was sent, what the schedule says."""
        if self.form.is_bound:
            definition = self.form.definition()
            return preview_of(definition, self.schedule, is_enabled=bool(self.form.cleaned_data.get("is_enabled")))
        return None if self.schedule is None else preview_of_schedule(self.schedule)

    def errors(self) -> dict[str, list[str]]:
        """Return all errors by the name of the field in the page; "" for those of the whole form."""
        found = {_name("", name): [str(text) for text in texts] for name, texts in self.form.errors.items()}
        if self.payload_form is not None and self.has_fields_of_task:
            for name, texts in self.payload_form.errors.items():
                found[_name(f"{PREFIX}-", name)] = [str(text) for text in texts]
        return found


def _name(prefix: str, name: str) -> str:
    return prefix.rstrip("-") if name == "__all__" else f"{prefix}{name}"
