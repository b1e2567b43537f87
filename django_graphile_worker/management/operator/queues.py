"""``queues``, ``pause``, ``resume`` and ``limits``: what holds jobs back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from django_graphile_worker import api
from django_graphile_worker.api.limits import LimitStatus, limit_statuses, override_limit, reset_limit
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError, UnknownQueueError, UnknownTaskError
from django_graphile_worker.limits import NUMBERS, LimitNumbers
from django_graphile_worker.management.arguments import Argument, number, time
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Columns, Values, both, capped
from django_graphile_worker.management.operator.verb import BY, Options, Verb, limit_of, name_of_user
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql import control
from django_graphile_worker.sql.inspection import limited_keys, queue_depths
from django_graphile_worker.sql.inspection.limited_keys import LimitedKey
from django_graphile_worker.sql.inspection.queue_depths import QueueDepth

QUEUES: Columns = (
    *("queue_name", capped("waiting"), "earliest_run_at", "locked_by", "locked_at"),
    *("is_paused", "paused_until", "pause_reason", "paused_by"),
)
PAUSES: Columns = ("kind", "name", "until", "reason", "by")
LIMITS: Columns = ("name", "concurrency", "rate", "burst", "tasks", "changed_by", "changed_at")
KEYS: Columns = ("key", "limit", capped("waiting"), "waiting_since", "running", "closed_until", "opens_at")


class Queues(Verb):
    name = "queues"
    summary = "List queues, the workers that hold them, and how many jobs wait."
    description = (
        "List named queues: those that a worker holds, paused queues, then others. Count waiting jobs, including "
        f"scheduled jobs, up to {queue_depths.MAX_COUNTED:,} for each queue."
    )
    examples = ("", "--queue warehouse", "--held --json")
    arguments = (
        Argument("--queue", "QUEUE", "List only this queue."),
        Argument("--held", "", "List only queues that are held or paused."),
        limit_of("queues"),
    )

    def run(self, console: Console, options: Options) -> None:
        limit = options["limit"]
        with console.reading() as (cursor, schema, now):
            found = queue_depths.held_first(
                cursor,
                limit=limit + 1,
                name=options["queue"],
                only_held=options["held"],
                most=queue_depths.MAX_COUNTED,
                schema=schema,
            )
        queues = map(_queue_as_dict, found)
        console.listing(queues, QUEUES, now, nothing="No queues.", limit=limit, noun="queues")


def _queue_as_dict(queue: QueueDepth) -> dict[str, Any]:
    names = ("is_paused", "paused_until", "pause_reason", "paused_by")
    return {
        "queue_name": queue.queue_name,
        "locked_by": None if queue.is_paused else queue.locked_by,
        "locked_at": None if queue.is_paused else queue.locked_at,
        **{name: getattr(queue, name) for name in names},
        "waiting": min(queue.number, queue_depths.MAX_COUNTED),
        "is_capped": queue.number > queue_depths.MAX_COUNTED,
        "earliest_run_at": queue.oldest,
    }


# One of these options names what is paused.
TARGETS = (
    Argument("--queue", "QUEUE", "The name of a queue."),
    Argument("--task", "TASK", "The identifier of a task."),
    Argument("--flag", "FLAG", "A flag: all jobs that have it."),
)


def _target_of(options: Options) -> dict[str, Any]:
    """Return the arguments of the API that name what is paused; empty if no option was given."""
    return {kind: options[kind] for kind in ("queue", "task", "flag") if options[kind] is not None}


def pause_sentence(pause: Values, now: datetime) -> str:
    """Return what is paused, until when, by whom and why."""
    until = "until it is resumed" if pause["until"] is None else f"until {both(pause['until'], now)}"
    by = f", by {pause['by']}" if pause["by"] else ""
    reason = f": {pause['reason']}" if pause["reason"] else ""
    return f"{pause['kind']} {pause['name']} {until}{by}{reason}"


def pause_as_dict(pause: control.Pause) -> dict[str, Any]:
    names = ("name", "paused_at", "until", "reason", "by")
    return {"kind": pause.kind.value, **{name: getattr(pause, name) for name in names}}


class Pause(Verb):
    name = "pause"
    summary = "Pause a queue, a task or a flag; without one of them, list what is paused."
    description = (
        "Let the jobs of a queue or a task, or all jobs with a flag, wait until they are resumed or until a time. Jobs "
        "that run finish. A paused queue also binds workers of Node.js; a paused task or flag does not. Pausing again "
        "changes the end and the reason. A queue or a task that is not in the database is refused without --create."
    )
    examples = (
        "",
        "--queue mail --until +1h --reason 'the provider is down'",
        "--task shop:charge --until 2026-05-01T12:00",
        "--flag bulk",
    )
    arguments = (
        TARGETS,
        BY,
        Argument("--until", "TIME", "End the pause then: +1h30m, or 2026-05-01T12:00.", time),
        Argument("--reason", "TEXT", "Why, for other operators.", default=""),
        Argument("--create", "", "Pause a queue or a task that is not in the database, too."),
    )

    def run(self, console: Console, options: Options) -> None:
        target = _target_of(options)
        if not target:
            self._list(console, options)
            return
        given = {name: options[name] for name in ("until", "reason", "create")}
        try:
            pause = api.pause(**target, **given, by=name_of_user(options), **console.place)
        except (UnknownQueueError, UnknownTaskError) as error:
            raise CommandError(str(error).replace("create=True", "--create")) from error
        found = pause_as_dict(pause)
        if console.is_json:
            console.dump(found)
        else:
            console.done(f"Paused: {pause_sentence(found, console.now())}.")

    def _list(self, console: Console, options: Options) -> None:
        if options["until"] is not None or options["reason"] or options["create"]:
            raise CommandError("Name what to pause with --queue, --task or --flag.")
        paused = map(pause_as_dict, api.pauses(**console.place))
        console.listing(paused, PAUSES, console.now(), nothing="Nothing is paused.")


class Resume(Verb):
    name = "resume"
    summary = "End the pause of a queue, a task or a flag."
    description = (
        "Let jobs start again that a pause has kept waiting. With --all, end every pause. If a job of a paused queue "
        "still runs, the next job of the queue starts after it."
    )
    examples = ("--queue mail", "--task shop:charge", "--all")
    arguments = (TARGETS, BY, Argument("--all", "", "Resume everything that is paused."))

    def run(self, console: Console, options: Options) -> None:
        target = _target_of(options)
        if bool(target) == options["all"]:
            raise CommandError("One of --queue, --task, --flag and --all is required.")
        targets = [target] if target else [{each.kind.value: each.name} for each in api.pauses(**console.place)]
        by = name_of_user(options)
        ended = [pause for each in targets if (pause := api.resume(**each, by=by, **console.place)) is not None]
        if console.is_json:
            console.dump([pause_as_dict(pause) for pause in ended])
            return
        for pause in ended:
            console.done(f"Resumed: {pause.kind} {pause.name}.")
        if not ended:
            what = " ".join(f"The {kind} {name} was not paused." for kind, name in target.items())
            console.note(what or "Nothing was paused.")


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
    arguments = (
        (
            Argument("--key", "TEXT", "List only the keys with this text."),
            Argument("--set", "LIMIT", "Give this limit other numbers."),
            Argument("--reset", "LIMIT", "Let the numbers of the code count for this limit."),
        ),
        Argument("--concurrency", "N", "With --set: so many at once.", number(1)),
        Argument("--rate", "RATE", "With --set: so many starts in a time, such as 100/m."),
        Argument("--burst", "N", "With --set: so many starts of the rate at once.", number(1)),
        limit_of("keys"),
    )

    def run(self, console: Console, options: Options) -> None:
        numbers = {name: options[name] for name in NUMBERS if options[name] is not None}
        if options["set"] is None and numbers:
            raise CommandError(f"--{next(iter(numbers))} needs --set with the name of a limit.")
        try:
            if options["set"] is not None:
                _set_limit(console, options["set"], numbers)
            elif options["reset"] is not None:
                _reset_limit(console, options["reset"])
            else:
                _list_limits(console, options)
        except (InvalidJobError, InvalidTypeError) as error:
            raise CommandError(str(error)) from error


def _set_limit(console: Console, name: str, given: dict[str, Any]) -> None:
    if not given:
        raise CommandError("--set needs --concurrency, --rate or both. To lift the limit: --reset.")
    numbers = LimitNumbers(**given, where="limits")
    with console.reading() as (cursor, _, _):
        statuses = limit_statuses(cursor, place_of(**console.place))
    before = next((limit.numbers for limit in statuses if limit.name == name), None)
    override_limit(name, numbers, changed_by=name_of_user({}), **console.place)
    if console.is_json:
        console.dump({"name": name, **_numbers_as_dict(numbers)})
    else:
        console.done(f"{name}: {numbers}, for all workers from now on.")
        console.note(f"Before: {before}. A number that was not given is no limit any more.")


def _reset_limit(console: Console, name: str) -> None:
    was_stored = reset_limit(name, changed_by=name_of_user({}), **console.place)
    if console.is_json:
        console.dump({"name": name, "was_changed": was_stored})
    elif was_stored:
        console.done(f"{name} has the numbers of the code again.")
    else:
        console.note(f"{name} had the numbers of the code already.")


def _list_limits(console: Console, options: Options) -> None:
    limit, text = options["limit"], options["key"]
    with console.reading() as (cursor, schema, now):
        limits = limit_statuses(cursor, place_of(**console.place))
        if text is None:
            keys = limited_keys.waiting_keys(cursor, schema=schema, limit=limit + 1)
        else:
            names = [each.name for each in limits]
            keys = limited_keys.named_keys(cursor, text, names, schema=schema, limit=limit + 1)
    found = {"limits": [*map(_limit_as_dict, limits)], "keys": [*map(_key_as_dict, keys[:limit])]}
    if console.is_json:
        console.dump(found)
    else:
        for name, columns, nothing in (
            ("limits", LIMITS, "No task of this project has a limit."),
            ("keys", KEYS, "No key is at its limit."),
        ):
            if found[name]:
                console.table(found[name], columns, now)
            elif name == "limits" or limits:
                console.note(nothing)
    if len(keys) > limit:
        console.note(f"More keys are at their limit; these are the first {limit}. Use --limit to list more.")


def _limit_as_dict(limit: LimitStatus) -> dict[str, Any]:
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
        "running": min(key.running, limited_keys.MAX_COUNTED),
        "running_jobs": [job.id for job in key.running_jobs],
        **{name: getattr(key, name) for name in ("oldest_run_at", "tasks", "closed_until", "opens_at")},
    }
