"""``crontab``: list, pause and resume recurring tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker import conf
from django_graphile_worker.api.connection import open_queue
from django_graphile_worker.crontab import CronItem, describe, upcoming
from django_graphile_worker.crontab.times import format_time_phrase
from django_graphile_worker.management.operator import arguments, formatting
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.management.options import existing_file
from django_graphile_worker.project_crontab import collect
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql.schedules import from_code
from django_graphile_worker.sql.schedules.from_code import KnownCrontab
from django_graphile_worker.text import shown

DEFAULT_TIMES = 5
Known = Mapping[str, KnownCrontab]


class Crontab(Verb):
    name = "crontab"
    summary = "List recurring tasks, with their next times and their last time."
    description = (
        "List the items of CRONTAB, of CRONTAB_FILE and of @task(cron=...), each with the meaning of its pattern, its "
        "time zone, its next times (in the current time zone) and the last time at which it fired. Items that are "
        "recorded in the database and are not in this project come last. With --pause or --resume, change one item "
        "for all workers, also for those of Node.js: a paused item does not fire, and the times that it missed are "
        "not backfilled when it is resumed."
    )
    examples = ("", "--next 20", "--crontab deploy/crontab --json", "--pause send_report", "--resume send_report")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--next",
            type=arguments.positive,
            default=DEFAULT_TIMES,
            metavar="N",
            help=f"Show the next N times (default: {DEFAULT_TIMES}).",
        )
        parser.add_argument(
            "--crontab",
            type=existing_file,
            dest="crontab_file",
            metavar="FILE",
            help="Read this file instead of CRONTAB_FILE.",
        )

        change = parser.add_mutually_exclusive_group()
        change.add_argument("--pause", metavar="ITEM", help="Do not fire this item until it is resumed.")
        change.add_argument("--resume", metavar="ITEM", help="Fire this item again, from now on.")

    def run(self, console: Console, options: Options) -> None:
        if options["pause"] is not None or options["resume"] is not None:
            _pause_or_resume(console, options["pause"], options["resume"])
        else:
            self._list(console, options)

    def _list(self, console: Console, options: Options) -> None:
        place = place_of(**console.place)
        settings = place.settings
        if options["crontab_file"] is not None:
            settings = settings.replace(crontab_file=options["crontab_file"])
        items = collect(settings, with_tasks=place.installation == conf.DEFAULT)
        with console.reading() as (cursor, schema, now):
            known = from_code.known_items(cursor, schema=schema)
        others = [known[name] for name in sorted(set(known) - {item.name for item in items})]
        if console.is_json:
            console.dump(_as_dict(items, known, others, now, options["next"]))
        else:
            self._report(console, items, known, others, now, options["next"])

    def _report(
        self,
        console: Console,
        items: Sequence[CronItem],
        known: Known,
        others: Sequence[KnownCrontab],
        now: datetime,
        count: int,
    ) -> None:
        if not items:
            console.note("This project has no crontab. Tasks with every=... are in: graphile_worker schedules.")
        blocks = [_block(console, item, known.get(item.name), now, count) for item in items]
        blocks += [_other_item(item, now) for item in others]
        console.say("\n\n".join(blocks))


def _pause_or_resume(console: Console, paused: str | None, resumed: str | None) -> None:
    name, change = (paused, from_code.pause) if paused is not None else (resumed or "", from_code.resume)
    with open_queue(**console.place) as queue:
        was_changed = change(queue.cursor, name, schema=queue.schema)
        known = from_code.known_crontabs(queue.cursor, schema=queue.schema)
    if name not in known:
        raise CommandError(_unknown_item(console, name, known))
    state = "paused" if paused is not None else "resumed from now on"
    if console.is_json:
        console.dump({"identifier": name, "is_paused": known[name].is_paused, "was_changed": was_changed})
    elif was_changed:
        console.say(console.style.SUCCESS(f"{shown(name)} is {state}."))
    else:
        console.note(f"{shown(name)} was paused already." if paused is not None else f"{shown(name)} was not paused.")


def _unknown_item(console: Console, name: str, known: Known) -> str:
    place = place_of(**console.place)
    items = {item.name for item in collect(place.settings, with_tasks=place.installation == conf.DEFAULT)}
    if name in items:
        way_out = " It is in the crontab of this project, but no worker has started with it yet: start one first."
    else:
        way_out = arguments.did_you_mean(name, {*known, *items}) or " graphile_worker crontab lists the items."
    return f"The database has no recurring task {name!r}.{way_out}"


def _block(console: Console, item: CronItem, known: KnownCrontab | None, now: datetime, count: int) -> str:
    pattern = item.match if isinstance(item.match, str) else "a function"
    coming = [] if _is_paused(known) else [formatting.both(moment, now) for moment in upcoming(item, now, count)]
    following = f"paused; resume it with --resume {shown(item.name)}" if _is_paused(known) else "not soon"
    pairs: list[tuple[str, formatting.Cell | str]] = [
        ("task", item.task),
        ("pattern", pattern),
        ("means", describe(item)),
        *_unusual(item),
        ("last", _last(known, now)),
        ("next", coming[0] if coming else following),
        *(("", moment) for moment in coming[1:]),
    ]
    return f"{console.style.MIGRATE_HEADING(shown(item.name))}\n{formatting.facts(pairs, indent='  ')}"


def _unusual(item: CronItem) -> list[tuple[str, formatting.Cell | str]]:
    pairs: list[tuple[str, formatting.Cell | str]] = []
    if item.period:
        pairs.append(("backfills", format_time_phrase(item.period)))
    if item.queue_name:
        pairs.append(("queue", item.queue_name))
    if item.job_key:
        pairs.append(("job key", item.job_key))
    return pairs


def _is_paused(known: KnownCrontab | None) -> bool:
    return known is not None and known.is_paused


def _last(known: KnownCrontab | None, now: datetime) -> str:
    if known is None:
        return "unknown: no worker has registered the item yet"
    if known.last_execution is None and known.is_paused:
        return "never, or no longer known"
    if known.last_execution is None:
        return f"never, known since {formatting.both(known.known_since, now)}"
    return formatting.both(known.last_execution, now)


def _other_item(known: KnownCrontab, now: datetime) -> str:
    pairs: list[tuple[str, formatting.Cell | str]] = [
        ("task", "not in this project's crontab; another worker has or had it"),
        ("last", _last(known, now)),
    ]
    return f"{shown(known.identifier)}\n{formatting.facts(pairs, indent='  ')}"


def _as_dict(
    items: Sequence[CronItem], known: Known, others: Sequence[KnownCrontab], now: datetime, count: int
) -> dict[str, Any]:
    return {
        "items": [_item_as_dict(item, known.get(item.name), now, count) for item in items],
        "others": [dataclasses.asdict(item) for item in others],
    }


def _item_as_dict(item: CronItem, known: KnownCrontab | None, now: datetime, count: int) -> dict[str, Any]:
    return {
        "identifier": item.name,
        "task": item.task,
        "pattern": item.match if isinstance(item.match, str) else None,
        "means": describe(item),
        "time_zone": item.zone.key if item.zone else "UTC",
        "payload": item.payload,
        "backfill_seconds": item.period.total_seconds(),
        "known_since": known.known_since if known else None,
        "last_execution": known.last_execution if known else None,
        "is_paused": _is_paused(known),
        "next": [] if _is_paused(known) else [moment.astimezone(UTC) for moment in upcoming(item, now, count)],
    }
