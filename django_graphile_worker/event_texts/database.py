"""The sentences about the database, its schema and its indexes."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _

from django_graphile_worker.event_texts.sentence import Facts, Sentence


def indexes_missed(facts: Facts) -> Iterator[Sentence]:
    names = ", ".join([*facts.texts("missing"), *facts.texts("incomplete")])
    yield Sentence(_("Indexes are missing or invalid: %(names)s."), {"names": names})
    yield Sentence(_("Run “manage.py graphile_worker repair”."), {})


def schema_refused(facts: Facts) -> Iterator[Sentence]:
    yield Sentence(_("Workers stop, because the schema is too new: %(error)s"), {"error": facts.text("error")})


def database_lost(facts: Facts) -> Iterator[Sentence]:
    seconds = facts.style.duration(facts.number("seconds") or 0)
    yield Sentence(_("Connection to the database lost: no answer for %(duration)s."), {"duration": seconds})


def tasks_unserved(facts: Facts) -> Iterator[Sentence]:
    text = _("No running worker handles the tasks of some ready jobs: %(tasks)s.")
    yield Sentence(text, {"tasks": ", ".join(facts.texts("tasks"))})
