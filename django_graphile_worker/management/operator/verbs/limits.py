"""``limits``: list limits and the keys at their limit, and change the numbers of a limit."""

from __future__ import annotations

import getpass
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker.api.limits import LimitStatus, limit_statuses, override_limit, reset_limit
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.limits import NUMBERS, LimitNumbers
from django_graphile_worker.management.operator import arguments, formatting
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Cell, Column
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql.inspection import limited_keys
from django_graphile_worker.sql.inspection.limited_keys import LimitedKey
from django_graphile_worker.text import shown

DEFAULT_LIMIT = 50


class Limits(Verb):
    name = "limits"
    summary = "List limits and the keys at their limit, and change the numbers of a limit."
    description = (
        "List the limits of the tasks of this project with the numbers that count, and the keys that jobs wait for: "
        "how many wait, since when, and how many run. With --set, give a limit other numbers, which count for all "
        "workers from now on, in place of the numbers of the code and of GRAPHILE_WORKER['LIMITS']; a number that is "
        "not given is no limit of that kind. With --reset, let the numbers of the code count again."
    )
    examples = (
        "",
        "--key account:42",
        "--set 'account:{account}' --concurrency 5 --rate 100/m --burst 20",
        "--reset 'account:{account}'",
    )

    def add_arguments(self, parser: CommandParser) -> None:
        change = parser.add_mutually_exclusive_group()
        change.add_argument("--key", metavar="TEXT", help="List only the keys with this text.")
        change.add_argument("--set", metavar="LIMIT", help="Give this limit other numbers.")
        change.add_argument("--reset", metavar="LIMIT", help="Let the numbers of the code count for this limit.")
        parser.add_argument("--concurrency", type=arguments.positive, metavar="N", help="With --set: so many at once.")
        parser.add_argument("--rate", metavar="RATE", help="With --set: so many starts in a time, such as 100/m.")
        parser.add_argument(
            "--burst", type=arguments.positive, metavar="N", help="With --set: so many starts of the rate at once."
        )
        arguments.add_limit(parser, "keys", default=DEFAULT_LIMIT)

    def run(self, console: Console, options: Options) -> None:
        numbers = {name: options[name] for name in NUMBERS if options[name] is not None}
        if options["set"] is None and numbers:
            raise CommandError(f"--{next(iter(numbers))} needs --set with the name of a limit.")
        try:
            if options["set"] is not None:
                _set(console, options["set"], numbers)
            elif options["reset"] is not None:
                _reset(console, options["reset"])
            else:
                _list(console, options)
        except (InvalidJobError, InvalidTypeError) as error:
            raise CommandError(str(error)) from error


def _set(console: Console, name: str, given: dict[str, Any]) -> None:
    if not given:
        raise CommandError("--set needs --concurrency, --rate or both. To lift the limit: --reset.")
    numbers = LimitNumbers(**given, where="limits")
    before = _numbers_of(console, name)
    override_limit(name, numbers, changed_by=getpass.getuser(), **console.place)
    if console.is_json:
        console.dump({"name": name, **_numbers_as_dict(numbers)})
    else:
        console.say(console.style.SUCCESS(f"{shown(name)}: {numbers}, for all workers from now on."))
        console.note(f"Before: {before}. A number that was not given is no limit any more.")


def _numbers_of(console: Console, name: str) -> LimitNumbers | None:
    """Return the numbers that count now; None for an unknown limit."""
    with console.reading() as (cursor, _, _):
        statuses = limit_statuses(cursor, place_of(**console.place))
    return next((limit.numbers for limit in statuses if limit.name == name), None)


def _reset(console: Console, name: str) -> None:
    was_stored = reset_limit(name, changed_by=getpass.getuser(), **console.place)
    if console.is_json:
        console.dump({"name": name, "was_changed": was_stored})
    elif was_stored:
        console.say(console.style.SUCCESS(f"{shown(name)} has the numbers of the code again."))
    else:
        console.note(f"{shown(name)} had the numbers of the code already.")


def _list(console: Console, options: Options) -> None:
    most, text = options["limit"], options["key"]
    with console.reading() as (cursor, schema, now):
        limits = limit_statuses(cursor, place_of(**console.place))
        if text is None:
            keys = limited_keys.waiting_keys(cursor, schema=schema, limit=most + 1)
        else:
            names = [limit.name for limit in limits]
            keys = limited_keys.named_keys(cursor, text, names, schema=schema, limit=most + 1)
    if console.is_json:
        console.dump(
            {"limits": [_as_dict(limit) for limit in limits], "keys": [_key_as_dict(key) for key in keys[:most]]}
        )
    else:
        _report(console, limits, keys[:most], now)
    if len(keys) > most:
        console.note(f"More keys are at their limit; these are the first {most}. Use --limit to list more.")


def _report(console: Console, limits: list[LimitStatus], keys: list[LimitedKey], now: datetime) -> None:
    if not limits:
        console.note("No task of this project has a limit.")
    else:
        console.table(_LIMIT_COLUMNS, [_limit_row(limit, now) for limit in limits])
    if keys:
        console.say("")
        console.table(_KEY_COLUMNS, [_key_row(key, now) for key in keys])
    elif limits:
        console.note("No key is at its limit.")


_LIMIT_COLUMNS = (
    Column("LIMIT", gives_way=True),
    Column("AT ONCE", is_number=True),
    Column("RATE"),
    Column("BURST", is_number=True),
    Column("TASKS", gives_way=True),
    Column("NUMBERS FROM", gives_way=True),
)
_KEY_COLUMNS = (
    Column("KEY", gives_way=True),
    Column("LIMIT", gives_way=True),
    Column("WAITING", is_number=True),
    Column("SINCE"),
    Column("RUNNING", is_number=True),
    Column("WAITING FOR", gives_way=True),
)


def _limit_row(limit: LimitStatus, now: datetime) -> list[Cell | str]:
    numbers = limit.numbers
    source = "code and settings"
    if limit.changed_at is not None:
        source = f"{limit.changed_by}, {formatting.relative(limit.changed_at, now)}"
    return [
        limit.name,
        "" if numbers.concurrency is None else str(numbers.concurrency),
        "" if numbers.rate is None else str(numbers.rate),
        "" if numbers.burst is None else str(numbers.burst),
        ", ".join(limit.tasks),
        source,
    ]


def _key_row(key: LimitedKey, now: datetime) -> list[Cell | str]:
    waits_for = "a place"
    if key.closed_until is not None:
        waits_for = f"a task closed it; it opens {formatting.relative(key.closed_until, now)}"
    elif key.opens_at is not None:
        when = f"is {formatting.relative(key.opens_at, now)}" if key.opens_at > now else "may be now"
        waits_for = f"its rate; the next start {when}"
    return [
        key.key_text,
        key.limit_name,
        _capped(key.waiting),
        "-" if key.blocked_at is None else formatting.relative(key.blocked_at, now),
        _capped(key.running),
        waits_for if key.waiting or key.closed_until is not None else "",
    ]


def _capped(number: int) -> str:
    most = limited_keys.MAX_COUNTED
    return f"{min(number, most)}{'+' if number > most else ''}"


def _as_dict(limit: LimitStatus) -> dict[str, Any]:
    return {
        "name": limit.name,
        **_numbers_as_dict(limit.numbers),
        "is_fair": limit.is_fair,
        "tasks": list(limit.tasks),
        "changed_by": limit.changed_by,
        "changed_at": limit.changed_at,
    }


def _numbers_as_dict(numbers: LimitNumbers) -> dict[str, Any]:
    rate = None if numbers.rate is None else str(numbers.rate)
    return {"concurrency": numbers.concurrency, "rate": rate, "burst": numbers.burst}


def _key_as_dict(key: LimitedKey) -> dict[str, Any]:
    return {
        "key": key.key_text,
        "limit": key.limit_name,
        "waiting": min(key.waiting, limited_keys.MAX_COUNTED),
        "is_capped": key.waiting > limited_keys.MAX_COUNTED,
        "waiting_since": key.blocked_at,
        "oldest_run_at": key.oldest_run_at,
        "tasks": key.tasks,
        "running": min(key.running, limited_keys.MAX_COUNTED),
        "running_jobs": [job.id for job in key.running_jobs],
        "closed_until": key.closed_until,
        "opens_at": key.opens_at,
    }
