"""The sentences about workers and their processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker.event_texts.sentence import Facts, Name, Sentence


def started(facts: Facts) -> Iterator[Sentence]:
    yield _counted(facts, _("Worker started: %(worker)s."), _("Worker started %(number)s times: %(worker)s."))


def stopped(facts: Facts) -> Iterator[Sentence]:
    yield _counted(facts, _("Worker stopped: %(worker)s."), _("Worker stopped %(number)s times: %(worker)s."))
    if facts.text("reason"):
        yield Sentence(_("Reason: %(reason)s."), {"reason": facts.text("reason")})


def returned(facts: Facts) -> Iterator[Sentence]:
    yield _counted(
        facts,
        _("Worker is back: %(worker)s had been declared lost."),
        _("Worker is back %(number)s times: %(worker)s had been declared lost."),
    )
    yield Sentence(_("It continues under a new id."), {})


def lost(facts: Facts) -> Iterator[Sentence]:
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


def recovered(facts: Facts) -> Iterator[Sentence]:
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


def replaced(facts: Facts) -> Iterator[Sentence]:
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
