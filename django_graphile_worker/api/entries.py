"""Checks what is to be added: payloads, times and names of tasks."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, cast

from django.utils import timezone

from django_graphile_worker import registry, signals, simulation
from django_graphile_worker.api.simulated import refuse_unknown_task
from django_graphile_worker.api.times import aware
from django_graphile_worker.exceptions import InvalidTypeError, PayloadError
from django_graphile_worker.job_options import FLAG_OPTIONS, JobOption
from django_graphile_worker.jobs import JobSpec
from django_graphile_worker.payloads import encode
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.adding import Entry

logger = logging.getLogger("django_graphile_worker.jobs")

# How many specs of a stream the receivers of ``pre_add_jobs`` get at a time.
RECEIVED_SPECS = 100


def prepared(specs: list[JobSpec], place: Place) -> list[JobSpec]:
    """Return the specs as the receivers of ``pre_add_jobs`` leave them, with the MAX_ATTEMPTS of the settings."""
    if signals.pre_add_jobs.is_heard():
        specs = _as_received(specs, place)
    most = place.settings.chosen_max_attempts
    if most is None:
        return specs
    return [_with_max_attempts(spec, most) for spec in specs]


def _with_max_attempts(spec: Any, most: int) -> Any:
    # Whatever is no spec is refused later, with its place.
    is_left_out = isinstance(spec, JobSpec) and spec.max_attempts is None
    return dataclasses.replace(spec, max_attempts=most) if is_left_out else spec


def _as_received(specs: list[JobSpec], place: Place) -> list[JobSpec]:
    received = list(specs)
    about = {"database": place.using, "installation": place.installation}
    signals.pre_add_jobs.send(sender=JobSpec, specs=received, **about)
    if len(received) != len(specs):
        raise InvalidTypeError(
            f"pre_add_jobs: a receiver left {len(received)} of {len(specs)} specs. It may replace specs, not add or "
            "remove them; raise an exception to refuse them."
        )
    return received


def prepared_stream(specs: Iterable[JobSpec], place: Place) -> Iterator[JobSpec]:
    """Return the specs as ``prepared()`` does, however many there are.

    Only a few are in memory: no more than one if nobody receives ``pre_add_jobs``.
    """
    remaining = iter(specs)
    while some := list(islice(remaining, RECEIVED_SPECS if signals.pre_add_jobs.is_heard() else 1)):
        yield from prepared(some, place)


def entries(specs: Iterable[JobSpec], place: Place) -> Iterator[Entry]:
    """Return the specs with their payloads; an error names the place of the spec."""
    for index, spec in enumerate(specs):
        if not isinstance(spec, JobSpec):
            raise InvalidTypeError(f"specs[{index}]: expected a JobSpec, got {type(spec).__name__}.")
        try:
            entry = entry_of(spec, place)
        except PayloadError as error:
            raise PayloadError(f"specs[{index}]: {error}", path=error.path) from error.__cause__
        yield entry


def entry_of(spec: JobSpec, place: Place) -> Entry:
    """Return a spec as it is added, with its payload as JSON; raise for a payload that cannot be stored."""
    if spec.identifier not in registry.tasks:
        _note_unknown_name(spec.identifier, place)
    if simulation.now is not None:
        spec = dataclasses.replace(spec, run_at=simulation.moved(aware(spec.run_at)) or simulation.now())
    elif isinstance(spec.run_at, datetime):
        run_at = aware(spec.run_at)
        if run_at is not spec.run_at:
            spec = dataclasses.replace(spec, run_at=run_at)
    stored_as_flags = [option for option in FLAG_OPTIONS if getattr(spec, option.name) is not None]
    if stored_as_flags:
        spec = _with_flags(spec, stored_as_flags)
    text = "{}" if spec.payload is None else encode(spec.payload, max_size=place.settings.max_payload_size)
    if registry.tasks.has_limits:
        _refuse_unkeyed(spec.identifier, text)
    return spec, text


def _refuse_unkeyed(identifier: str, payload_text: str) -> None:
    task = registry.tasks.get(identifier)
    if task is None or not task.limits:
        return
    # Late import: most projects have no limits.
    from django_graphile_worker.limits import refuse_unkeyed

    refuse_unkeyed(task, payload_text)


def _with_flags(spec: JobSpec, options: Sequence[JobOption]) -> JobSpec:
    """Return the spec with flags in place of these options."""
    now = datetime.now(UTC) if simulation.now is None else simulation.now()
    run_at = _in_zone(spec.run_at) if isinstance(spec.run_at, datetime) else now + (spec.run_at or timedelta(0))
    flags = list(spec.flags or ())
    for option in options:
        value = getattr(spec, option.name)
        if isinstance(value, datetime):
            value = _in_zone(aware(value, name=option.name))
        assert option.flag is not None
        flags.append(option.flag(value, run_at))
    stored: dict[str, Any] = {option.name: None for option in options}
    return dataclasses.replace(spec, **stored, flags=tuple(flags))


def _in_zone(moment: Any) -> datetime:
    """Return a time with its zone: without USE_TZ, times are naive and in the zone of the site."""
    aware_moment = timezone.make_aware(moment, timezone.get_default_timezone()) if timezone.is_naive(moment) else moment
    return cast("datetime", aware_moment)


def _note_unknown_name(name: str, place: Place) -> None:
    if simulation.is_immediate or place.settings.immediate:
        refuse_unknown_task(name)
    if name not in logged_names and len(logged_names) < MOST_LOGGED_NAMES:
        _log_unknown_name(name)


# Task identifiers that this project does not have; each is logged once.
logged_names: set[str] = set()
MOST_LOGGED_NAMES = 1_000


def _log_unknown_name(name: str) -> None:
    """Log a task identifier that may be mistyped. It may also be a task that the worker of another project has."""
    logged_names.add(name)
    # Late import: only a mistake needs suggestions.
    from django_graphile_worker.suggestions import did_you_mean

    hint = did_you_mean(name, registry.tasks.identifiers())
    logger.warning(
        "job added for %r, a task that this project does not have: it waits for a worker that has it.%s",
        name,
        f" {hint}" if hint else "",
        extra={"task_identifier": name},
    )
