"""The sentences about schedules, pauses, limits and locks."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker.event_texts.sentence import Facts, Name, Sentence


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


def schedule_backfilled(facts: Facts) -> Iterator[Sentence]:
    number = facts.number("ticks") or 0
    text = ngettext(
        "Schedule late: %(number)s missed run of %(name)s was added afterwards.",
        "Schedule late: %(number)s missed runs of %(name)s were added afterwards.",
        number,
    )
    yield Sentence(text, {"name": Name("item", facts.name), "number": facts.style.number(number)})


def schedule_paused(facts: Facts) -> Iterator[Sentence]:
    yield Sentence(_("Schedule paused: %(name)s."), {"name": Name("item", facts.name)})
    if facts.moment("until"):
        yield Sentence(_("Until %(time)s."), {"time": facts.moment("until")})
    yield from _by(facts)


def schedule_resumed(facts: Facts) -> Iterator[Sentence]:
    yield Sentence(_("Schedule resumed: %(name)s."), {"name": Name("item", facts.name)})
    yield from _by(facts)


def paused(facts: Facts) -> Iterator[Sentence]:
    texts = {"queue": _("Queue paused: %(name)s."), "task": _("Task paused: %(name)s.")}
    yield Sentence(texts.get(facts.text("what"), _("Flag paused: %(name)s.")), _target(facts))
    if facts.moment("until"):
        yield Sentence(_("Until %(time)s."), {"time": facts.moment("until")})
    yield from _reason(facts)
    yield from _by(facts)


def resumed(facts: Facts) -> Iterator[Sentence]:
    texts = {"queue": _("Queue resumed: %(name)s."), "task": _("Task resumed: %(name)s.")}
    yield Sentence(texts.get(facts.text("what"), _("Flag resumed: %(name)s.")), _target(facts))
    if facts.by is None and facts.moment("until"):
        yield Sentence(_("Its pause ended at %(time)s."), {"time": facts.moment("until")})
    yield from _by(facts)


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


def limit_reset(facts: Facts) -> Iterator[Sentence]:
    text = _("Limit reset: %(name)s has the numbers of the code again.")
    yield Sentence(text, {"name": Name("limit", facts.name)})
    yield from _by(facts)


def stale_locks_released(facts: Facts) -> Iterator[Sentence]:
    found = [
        text(number)
        for text, number in ((facts.jobs, facts.number("jobs")), (facts.queues, facts.number("queues")))
        if number
    ]
    yield Sentence(_("Stale locks removed: %(things)s."), {"things": ", ".join(found)})
    if facts.text("holder"):
        yield Sentence(_("Held by %(worker)s."), {"worker": Name("worker", facts.text("holder"))})


def force_unlocked(facts: Facts) -> Iterator[Sentence]:
    yield Sentence(_("Locks removed by an operator: %(workers)s."), {"workers": facts.text("workers")})


def _target(facts: Facts) -> dict[str, Name]:
    return {"name": Name(facts.text("what") or "flag", facts.name)}


def _reason(facts: Facts) -> Iterator[Sentence]:
    if facts.text("reason"):
        yield Sentence(_("Reason: %(reason)s."), {"reason": facts.text("reason")})


def _by(facts: Facts) -> Iterator[Sentence]:
    if facts.by is not None:
        yield Sentence(_("By %(by)s."), {"by": facts.by})
