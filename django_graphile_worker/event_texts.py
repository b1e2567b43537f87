"""Events of the log as sentences, for the admin, which translates them and adds links, and for the command line.

To add a kind of event, write the function that describes it, with the name of the kind, and register it with a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_graphile_worker.sql.events import LoggedEvent

# A larger number, also an infinite one, is not a number of jobs or of seconds.
MAX_NUMBER = 10**18


class Name(NamedTuple):
    """A name in a sentence, and the thing that has it: "worker", "queue", "task", "flag", "item", "job" or "limit"."""

    kind: str
    text: str
    # What identifies the thing, if that is not its name.
    id: str = ""


class Sentence(NamedTuple):
    """A text with placeholders, and their values."""

    text: str
    values: Mapping[str, Any]

    def __str__(self) -> str:
        plain = {name: value.text if isinstance(value, Name) else value for name, value in self.values.items()}
        return self.text % plain


class Style(NamedTuple):
    """How a reader gets durations and times."""

    duration: Callable[[float], str]
    moment: Callable[[datetime], str]
    number: Callable[[int], str] = "{:,}".format


class Facts:
    """The details of an event. Any program can write the row, so every value is checked."""

    def __init__(self, event: LoggedEvent, style: Style) -> None:
        self.event = event
        self.style = style
        self._details = event.details

    def text(self, key: str) -> str:
        value = self._details.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int | None:
        value = self._details.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return round(value) if abs(value) < MAX_NUMBER else None

    def texts(self, key: str) -> list[str]:
        value = self._details.get(key)
        return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []

    def numbers(self, key: str) -> list[int]:
        value = self._details.get(key)
        return [each for each in value if isinstance(each, int)] if isinstance(value, list) else []

    def moment(self, key: str) -> str:
        try:
            return self.style.moment(datetime.fromisoformat(self.text(key)))
        except (ValueError, OverflowError):
            return ""

    @property
    def worker(self) -> Name:
        """The worker that the event is about, with its process, because a host can have several workers."""
        name, pid = self.event.subject or self.event.worker_id or "", self.number("pid")
        is_one = self.event.number == 1 and pid is not None
        return Name("worker", f"{name} {pid}" if is_one else name, self.event.worker_id or "")

    @property
    def by(self) -> Name | None:
        """The worker or the user that made the change."""
        by, host = self.text("by"), self.text("by_host")
        if not by:
            return None
        return self.other_worker(by, host) if host else Name("user", by)

    def other_worker(self, worker_id: str, host: str) -> Name:
        """Return the name of another worker than that of the event: its host, or its id if both are on one host."""
        return Name("worker", worker_id if host == self.event.subject and worker_id else host, worker_id)

    @property
    def name(self) -> str:
        return self.text("name") or self.event.subject

    def jobs(self, number: int) -> str:
        return ngettext("%(number)s job", "%(number)s jobs", number) % {"number": self.style.number(number)}

    def queues(self, number: int) -> str:
        return ngettext("%(number)s queue", "%(number)s queues", number) % {"number": self.style.number(number)}


Describe = Callable[[Facts], Iterator[Sentence]]

# The function that describes each kind of event.
KINDS: dict[str, Describe] = {}
# The groups of the filter: their labels and kinds.
GROUPS: dict[str, tuple[Any, list[str]]] = {
    "workers": (gettext_lazy("Workers"), []),
    "schedules": (gettext_lazy("Schedules"), []),
    "control": (gettext_lazy("Pauses, limits and locks"), []),
    "database": (gettext_lazy("Database"), []),
}


def describe(event: LoggedEvent, style: Style) -> list[Sentence]:
    """Return the sentences that describe the event. A kind that this version does not know is shown by its name."""
    write = KINDS.get(event.kind)
    if write is None:
        return [Sentence("%(kind)s: %(subject)s", {"kind": event.kind, "subject": event.subject})]
    return list(write(Facts(event, style)))


def kind_in(group: str) -> Callable[[Describe], Describe]:
    """Register a function as the description of the kind of event that has its name."""

    def register(write: Describe) -> Describe:
        KINDS[write.__name__] = write
        GROUPS[group][1].append(write.__name__)
        return write

    return register


def _by(facts: Facts) -> Iterator[Sentence]:
    if facts.by is not None:
        yield Sentence(_("By %(by)s."), {"by": facts.by})


def _reason(facts: Facts) -> Iterator[Sentence]:
    if facts.text("reason"):
        yield Sentence(_("Reason: %(reason)s."), {"reason": facts.text("reason")})


def _until(facts: Facts) -> Iterator[Sentence]:
    if facts.moment("until"):
        yield Sentence(_("Until %(time)s."), {"time": facts.moment("until")})


@kind_in("workers")
def worker_started(facts: Facts) -> Iterator[Sentence]:
    yield _counted(facts, _("Worker started: %(worker)s."), _("Worker started %(number)s times: %(worker)s."))


@kind_in("workers")
def worker_stopped(facts: Facts) -> Iterator[Sentence]:
    yield _counted(facts, _("Worker stopped: %(worker)s."), _("Worker stopped %(number)s times: %(worker)s."))
    yield from _reason(facts)


@kind_in("workers")
def worker_returned(facts: Facts) -> Iterator[Sentence]:
    yield _counted(
        facts,
        _("Worker is back: %(worker)s had been declared lost."),
        _("Worker is back %(number)s times: %(worker)s had been declared lost."),
    )
    yield Sentence(_("It continues under a new id."), {})


@kind_in("workers")
def worker_lost(facts: Facts) -> Iterator[Sentence]:
    silence = facts.style.duration(facts.number("silent_seconds") or 0)
    sentence = _counted(
        facts,
        _("Worker lost: %(worker)s (no heartbeat for %(duration)s)."),
        _("Worker lost %(number)s times: %(worker)s (no heartbeat for %(duration)s)."),
    )
    yield Sentence(sentence.text, {**sentence.values, "duration": silence})
    yield from _fate_of_jobs(facts)
    yield from suspects(facts.event.recovered)


def _fate_of_jobs(facts: Facts) -> Iterator[Sentence]:
    recovered, held = facts.event.recovered.get("jobs"), facts.number("jobs") or 0
    if facts.event.number > 1:
        # The jobs of one of the workers are not those of all.
        recovered = None
    if isinstance(recovered, int) and recovered > 0:
        by = facts.event.recovered.get("by_host")
        values = {"number": facts.style.number(recovered)}
        if isinstance(by, str) and by:
            text = ngettext(
                "%(number)s job was returned by %(by)s.", "%(number)s jobs were returned by %(by)s.", recovered
            )
            yield Sentence(text, {**values, "by": facts.other_worker(str(facts.event.recovered.get("by", "")), by)})
        else:
            yield Sentence(
                ngettext("%(number)s job was returned.", "%(number)s jobs were returned.", recovered), values
            )
    elif held:
        values = {"number": facts.style.number(held)}
        yield Sentence(ngettext("It held %(number)s job.", "It held %(number)s jobs.", held), values)
    else:
        yield Sentence(_("It held no jobs."), {})


def suspects(recovered: Mapping[str, Any]) -> Iterator[Sentence]:
    """Yield which jobs of a dead worker have no attempt left, or have lost a worker before."""
    texts = {
        "exhausted_ids": _("Job %(job)s has no attempt left and failed."),
        "suspected_ids": _("Job %(job)s has lost a worker before: it may be the cause."),
    }
    for key, text in texts.items():
        ids = recovered.get(key)
        for job_id in ids if isinstance(ids, list) else []:
            if isinstance(job_id, int):
                yield Sentence(text, {"job": Name("job", f"#{job_id}", str(job_id))})


@kind_in("workers")
def jobs_recovered(facts: Facts) -> Iterator[Sentence]:
    number = facts.number("jobs") or 0
    values = {"number": facts.style.number(number), "worker": facts.worker}
    if facts.by is not None:
        text = ngettext(
            "%(number)s job of the lost worker %(worker)s was returned by %(by)s.",
            "%(number)s jobs of the lost worker %(worker)s were returned by %(by)s.",
            number,
        )
        yield Sentence(text, {**values, "by": facts.by})
    else:
        text = ngettext(
            "%(number)s job of the lost worker %(worker)s was returned.",
            "%(number)s jobs of the lost worker %(worker)s were returned.",
            number,
        )
        yield Sentence(text, values)
    exhausted, named = facts.number("exhausted"), facts.numbers("exhausted_ids")
    if exhausted and exhausted > len(named):
        text = ngettext(
            "%(number)s of them has no attempt left and failed.",
            "%(number)s of them have no attempt left and failed.",
            exhausted,
        )
        yield Sentence(text, {"number": facts.style.number(exhausted)})
    yield from suspects(facts.event.details)


@kind_in("workers")
def process_replaced(facts: Facts) -> Iterator[Sentence]:
    values = {"worker": facts.worker, "pid": facts.number("former_pid") or "?"}
    cause, code = facts.text("cause"), facts.number("exit_code")
    if cause == "hung":
        yield Sentence(_("Worker process replaced: %(worker)s, process %(pid)s hung and was killed."), values)
    elif cause == "job_does_not_stop":
        yield Sentence(_("Worker process replaced: %(worker)s, process %(pid)s has a job that does not stop."), values)
    elif code is not None and code < 0:
        text = _("Worker process replaced: %(worker)s, process %(pid)s was killed by signal %(signal)s.")
        yield Sentence(text, {**values, "signal": -code})
    else:
        text = _("Worker process replaced: %(worker)s, process %(pid)s ended with exit code %(code)s.")
        yield Sentence(text, {**values, "code": "?" if code is None else code})
    if facts.event.number > 1:
        yield Sentence(_("%(number)s times."), {"number": facts.style.number(facts.event.number)})


def _counted(facts: Facts, one: str, many: str) -> Sentence:
    number = facts.event.number
    values = {"worker": facts.worker, "number": facts.style.number(number)}
    return Sentence(one if number == 1 else many, values)


@kind_in("schedules")
def schedule_missed(facts: Facts) -> Iterator[Sentence]:
    number = facts.number("ticks") or 0
    text = ngettext(
        "Schedule missed: %(number)s run of %(name)s.",
        "Schedule missed: %(number)s runs of %(name)s.",
        number,
    )
    yield Sentence(text, {"name": Name("item", facts.name), "number": facts.style.number(number)})
    yield Sentence(_("No worker was running then, or none reached the database."), {})
    if facts.moment("last_tick"):
        yield Sentence(_("Last due: %(time)s."), {"time": facts.moment("last_tick")})


@kind_in("schedules")
def schedule_backfilled(facts: Facts) -> Iterator[Sentence]:
    number = facts.number("ticks") or 0
    text = ngettext(
        "Schedule late: %(number)s missed run of %(name)s was added afterwards.",
        "Schedule late: %(number)s missed runs of %(name)s were added afterwards.",
        number,
    )
    yield Sentence(text, {"name": Name("item", facts.name), "number": facts.style.number(number)})


@kind_in("schedules")
def schedule_paused(facts: Facts) -> Iterator[Sentence]:
    yield Sentence(_("Schedule paused: %(name)s."), {"name": Name("item", facts.name)})
    yield from _until(facts)
    yield from _by(facts)


@kind_in("schedules")
def schedule_resumed(facts: Facts) -> Iterator[Sentence]:
    yield Sentence(_("Schedule resumed: %(name)s."), {"name": Name("item", facts.name)})
    yield from _by(facts)


@kind_in("control")
def work_paused(facts: Facts) -> Iterator[Sentence]:
    texts = {"queue": _("Queue paused: %(name)s."), "task": _("Task paused: %(name)s.")}
    yield Sentence(
        texts.get(facts.text("what"), _("Flag paused: %(name)s.")),
        {"name": Name(facts.text("what") or "flag", facts.name)},
    )
    yield from _until(facts)
    yield from _reason(facts)
    yield from _by(facts)


@kind_in("control")
def work_resumed(facts: Facts) -> Iterator[Sentence]:
    texts = {"queue": _("Queue resumed: %(name)s."), "task": _("Task resumed: %(name)s.")}
    yield Sentence(
        texts.get(facts.text("what"), _("Flag resumed: %(name)s.")),
        {"name": Name(facts.text("what") or "flag", facts.name)},
    )
    if facts.by is None and facts.moment("until"):
        yield Sentence(_("Its pause ended at %(time)s."), {"time": facts.moment("until")})
    yield from _by(facts)


@kind_in("control")
def limit_changed(facts: Facts) -> Iterator[Sentence]:
    yield Sentence(_("Limit changed: %(name)s."), {"name": Name("limit", facts.name)})
    if facts.number("concurrency") is not None:
        yield Sentence(_("At most %(number)s at a time."), {"number": facts.number("concurrency")})
    if facts.number("rate_count") is not None:
        values = {
            "number": facts.number("rate_count"),
            "duration": facts.style.duration(facts.number("rate_seconds") or 0),
        }
        yield Sentence(_("At most %(number)s in %(duration)s."), values)
    yield from _by(facts)


@kind_in("control")
def limit_reset(facts: Facts) -> Iterator[Sentence]:
    text = _("Limit reset: %(name)s has the numbers of the code again.")
    yield Sentence(text, {"name": Name("limit", facts.name)})
    yield from _by(facts)


@kind_in("control")
def stale_locks_released(facts: Facts) -> Iterator[Sentence]:
    found = [
        text(number)
        for text, number in ((facts.jobs, facts.number("jobs")), (facts.queues, facts.number("queues")))
        if number
    ]
    yield Sentence(_("Stale locks removed: %(things)s."), {"things": ", ".join(found)})
    if facts.text("holder"):
        yield Sentence(_("Held by %(worker)s."), {"worker": Name("worker", facts.text("holder"))})


@kind_in("control")
def force_unlocked(facts: Facts) -> Iterator[Sentence]:
    yield Sentence(_("Locks removed by an operator: %(workers)s."), {"workers": facts.text("workers")})


@kind_in("database")
def indexes_missed(facts: Facts) -> Iterator[Sentence]:
    names = ", ".join([*facts.texts("missing"), *facts.texts("incomplete")])
    yield Sentence(_("Indexes are missing or invalid: %(names)s."), {"names": names})
    yield Sentence(_("Run “manage.py graphile_worker repair”."), {})


@kind_in("database")
def schema_refused(facts: Facts) -> Iterator[Sentence]:
    yield Sentence(_("Workers stop, because the schema is too new: %(error)s"), {"error": facts.text("error")})


@kind_in("database")
def database_lost(facts: Facts) -> Iterator[Sentence]:
    seconds = facts.style.duration(facts.number("seconds") or 0)
    yield Sentence(_("Connection to the database lost: no answer for %(duration)s."), {"duration": seconds})


@kind_in("database")
def tasks_unserved(facts: Facts) -> Iterator[Sentence]:
    text = _("No running worker handles the tasks of some ready jobs: %(tasks)s.")
    yield Sentence(text, {"tasks": ", ".join(facts.texts("tasks"))})
