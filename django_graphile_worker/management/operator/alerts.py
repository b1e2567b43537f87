"""``alerts``: what fires now, a test message, and a round of judging for a time without workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
from django.core.management.base import CommandError

from django_graphile_worker.management.arguments import Argument
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Columns
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.setting_types import AlertSettings
from django_graphile_worker.sql import alerts as sql_alerts
from django_graphile_worker.sql.errors import translated
from django_graphile_worker.telemetry.alert_delivery import TEST, DeliveryError, compose, deliver, label
from django_graphile_worker.telemetry.alert_round import read_facts, run_round
from django_graphile_worker.telemetry.alerts import judge, usable
from django_graphile_worker.worker.database.connection import Database

UNSET = 'GRAPHILE_WORKER["ALERTS"] is not set, so nobody is told of problems. Example: "ALERTS": ["mail_admins"].'
FIRING: Columns = ("kind", "text", "since", "told_at")


class Alerts(Verb):
    name = "alerts"
    summary = "List which alerts fire now; with --test, send a test message."
    description = (
        "Workers judge the setting ALERTS. While none runs, nobody would say so: run alerts --judge every minute, from "
        "cron or another host, to judge without a worker. It tells nothing twice, and exits with 1 if a message was "
        "not delivered. Without options, this verb reads what fires now, and neither tells nor stores anything."
    )
    examples = ("", "--test", "--judge")
    arguments = (
        (
            Argument("--test", "", "Send a test message to each destination of ALERTS."),
            Argument("--judge", "", "Judge now, as a worker does, and tell what is new."),
        ),
    )

    def run(self, console: Console, options: Options) -> None:
        place = place_of(**console.place)
        settings = place.settings.alerts
        if settings is None and (options["test"] or options["judge"]):
            raise CommandError(UNSET)
        if options["test"] and settings is not None:
            _test(console, place, settings)
        elif options["judge"] and settings is not None:
            _judge(console, place, settings)
        else:
            _list(console, place, settings)


def _test(console: Console, place: Place, settings: AlertSettings) -> None:
    message, failed = compose([TEST._replace(at=time.time())], place), 0
    for destination in settings.to:
        try:
            console.done(f"{label(destination)}: {deliver(message, destination, place)}.")
        except DeliveryError as error:
            failed += 1
            console.warn(f"{label(destination)}: not delivered: {error}")
    if failed:
        raise CommandError(f"{failed} of {len(settings.to)} destinations did not take the test message.")


def _judge(console: Console, place: Place, settings: AlertSettings) -> None:
    with _database(place) as database:
        done = run_round(database, place, settings)
    if done is None:
        console.note("Another process has judged within the interval.")
        return
    for name, result in done.told:
        console.done(f"{name}: {result}")
    if done.failed:
        raise CommandError("\n".join(f"{name}: not delivered: {error}" for name, error in done.failed))
    if not done.told:
        console.note("There is nothing new to tell.")


def _list(console: Console, place: Place, settings: AlertSettings | None) -> None:
    used = settings or AlertSettings(to=())
    with _database(place) as database:
        with database.cursor() as cursor:
            stored = sql_alerts.read(cursor, schema=database.schema)
        facts = read_facts(database, place, used, stored.now)
    before = usable(stored.state)
    _, state = judge(facts, before, used)
    told = before.get("firing", {})
    rows = [_row(each, told.get(key)) for key, each in state["firing"].items()]
    console.listing(rows, FIRING, datetime.fromtimestamp(stored.now, UTC), nothing="No alert fires.")
    if settings is None:
        console.note(UNSET)


def _row(entry: dict[str, Any], told: dict[str, Any] | None) -> dict[str, Any]:
    names = ("kind", "subject", "error", "text", "detail", "number")
    times = {"since": entry["since"] or entry["began_at"], "told_at": told and told["told_at"]}
    return {
        **{name: entry[name] for name in names},
        **{name: None if each is None else datetime.fromtimestamp(each, UTC) for name, each in times.items()},
    }


@contextmanager
def _database(place: Place) -> Iterator[Database]:
    """Open a connection like that of a worker: a round commits each of its statements."""
    database = Database(place.using, place.settings, part="alerts")
    try:
        yield database
    except psycopg.Error as error:
        ours = translated(error, alias=database.alias, schema=database.schema)
        raise ours or CommandError(f"The database answered with an error: {error}") from error
    finally:
        database.close()
