"""What the charts of the overview are about: all jobs, or the jobs of a task, a queue or a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_graphile_worker.admin.charts.chart_data import Span
from django_graphile_worker.sql import statistics
from django_graphile_worker.sql.statistics import ALL, QUEUE, TASK, WORKER, NamedRows

KINDS = (TASK, QUEUE, WORKER)
# The parameter of the form that selects the subject. Links have the kind as their parameter: ?queue=eu.
PARAMETER = "of"


@dataclass(frozen=True, slots=True)
class Subject:
    """A task, a queue or a worker, or (with an empty kind) all jobs."""

    kind: str = ""
    name: str = ""

    @property
    def value(self) -> str:
        """The value of the subject in the form."""
        return f"{self.kind}:{self.name}" if self.kind else ""

    @property
    def query(self) -> dict[str, str]:
        """The parameters of an address that selects the subject."""
        return {self.kind: self.name} if self.kind else {}

    @property
    def title(self) -> str:
        titles = {
            "": _("Activity"),
            TASK: _("Activity of the task %(name)s"),
            QUEUE: _("Activity of the queue %(name)s"),
            WORKER: _("Activity of the worker %(name)s"),
        }
        return titles[self.kind] % {"name": self.name} if self.kind else titles[""]


def selected_subject(request: HttpRequest) -> Subject:
    """Return the subject that the form or a link selects; all jobs if there is none."""
    kind, _separator, name = request.GET.get(PARAMETER, "").partition(":")
    given = {kind: name} | {each: request.GET[each] for each in KINDS if each in request.GET}
    for each in KINDS:
        if chosen := given.get(each, "").replace("\x00", ""):
            return Subject(each, chosen)
    return Subject()


def read_counts(cursor: Any, subject: Subject, span: Span, now: datetime, *, schema: str) -> NamedRows:
    """Read the statistics of the subject."""
    kind, period, since = subject.kind or ALL, span.period, span.since(now)
    return statistics.read(cursor, kind, subject.name, schema=schema, period=period, since=since)


@dataclass(frozen=True, slots=True)
class SubjectGroup:
    """The subjects of one kind that the form offers: value, name, and whether it is selected."""

    label: str
    options: Sequence[tuple[str, str, bool]]


def subject_groups(names: Mapping[str, Sequence[str]], selected: Subject) -> list[SubjectGroup]:
    """Return what the form offers, with the selected subject even if it has done nothing in this time."""
    labels = {TASK: _("Tasks"), QUEUE: _("Queues"), WORKER: _("Workers")}
    groups: list[SubjectGroup] = []
    for kind, label in labels.items():
        offered = {*names.get(kind, ()), *([selected.name] if selected.kind == kind else [])}
        subjects = [Subject(kind, name) for name in sorted(offered)]
        if subjects:
            groups.append(SubjectGroup(label, [(each.value, each.name, each == selected) for each in subjects]))
    return groups
