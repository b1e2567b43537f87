"""The message that tells news of alerts, and its way: mail to ADMINS, a webhook, or a job of the project."""

from __future__ import annotations

import html
import json
import logging
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import django
from django.conf import settings as django_settings
from django.core.mail import get_connection, mail_admins
from django.db import connections

from django_graphile_worker.api.add import add_job
from django_graphile_worker.conf import are_installations_named
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.routing import Place
from django_graphile_worker.setting_types import MAIL_ADMINS, TASK_PREFIX
from django_graphile_worker.telemetry.alerts import BEGAN, GREW, KINDS, OVER, Condition, News
from django_graphile_worker.text import escaped, readable_duration

logger = logging.getLogger("django_graphile_worker.worker")

# Seconds that a server may be silent, and that a delivery may take in all: less than the claim of a round.
SERVER_TIMEOUT = 10.0
LONGEST_DELIVERY = 60.0
# A message has so many lines of news, and a subject so many characters.
MAX_NEWS = 20
MAX_SUBJECT = 150
PREFIXES = {BEGAN: "", GREW: "Still: ", OVER: "Over: "}


class DeliveryError(Exception):
    """A message was not delivered; the text may be logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message in the forms of all destinations."""

    subject: str
    body: str
    alerts: Sequence[Mapping[str, Any]]

    @property
    def payload(self) -> dict[str, Any]:
        """The payload of a job: the message, and its alerts as fields."""
        return {"subject": self.subject, "text": self.body, "alerts": list(self.alerts)}

    @property
    def webhook(self) -> dict[str, Any]:
        """The same for Slack and what takes its form, where ``<!channel>`` in the text of an error would be a call."""
        subject = f"{django_settings.EMAIL_SUBJECT_PREFIX}{self.subject}"
        return {**self.payload, "text": html.escape(f"{subject}\n\n{self.body}", quote=False)}


# Told with the time at which it is sent.
TEST = News(BEGAN, Condition(kind="test", text='A test of GRAPHILE_WORKER["ALERTS"]'), 0.0)


def compose(news: Sequence[News], place: Place) -> Message:
    """Return the message that tells news: what fires, and then what is over."""
    news = sorted(news, key=lambda each: each.phase == OVER)
    prefix, text = PREFIXES[news[0].phase], _line(news[0].condition.text)
    where = f"{place.label}: " if are_installations_named() else ""
    fires = sum(each.phase != OVER for each in news)
    number = f"{fires or len(news)} alerts: " if (fires or len(news)) > 1 else ""
    subject = f"{where}{number}{prefix}{text}" if fires else f"{where}{prefix}{number}{text}"
    paragraphs = ["\n".join(_lines(each)) for each in news[:MAX_NEWS]]
    if len(news) > MAX_NEWS:
        paragraphs.append(f"And {len(news) - MAX_NEWS} more.")
    return Message(
        subject=subject if len(subject) <= MAX_SUBJECT else f"{subject[: MAX_SUBJECT - 1]}…",
        body="\n\n".join([*paragraphs, *_about_silence(news)]),
        alerts=[_fields(each) for each in news[:MAX_NEWS]],
    )


def _line(text: str) -> str:
    """Return a text of the project as one line; names and errors may have any character."""
    return escaped(" ".join(text.split()))


def _lines(news: News) -> Iterator[str]:
    condition, kind = news.condition, KINDS.get(news.condition.kind)
    yield f"{PREFIXES[news.phase]}{_line(condition.text)}."
    if kind is None:
        return
    if news.phase == OVER:
        lasted = f" It began at {_moment(condition.since)}." if condition.since else ""
        yield f"  {kind.over}{lasted}"
        return
    if news.more:
        yield f"  {news.more:,} more since this was last told."
    if condition.detail:
        yield f"  {_line(condition.detail)}"
    if condition.since:
        yield f"  Since {_moment(condition.since)} ({readable_duration(news.at - condition.since)})."
    task = f" --task {escaped(shlex.quote(condition.subject))}" if condition.error else ""
    yield f"  To see more: manage.py graphile_worker {kind.look}{task}"


def _about_silence(news: Sequence[News]) -> Iterator[str]:
    """Yield how to be told less of what fires."""
    fires = [each.condition for each in news if each.phase != OVER and each.condition.kind in KINDS]
    if not fires:
        return
    settings = list(dict.fromkeys(kind.setting for each in fires if (kind := KINDS[each.kind]).setting))
    if len(fires) == 1:
        subject = fires[0].subject
        ways = [f'"IGNORE": [{_literal(subject)}] for this one'] if subject else []
        ways += [f'"{setting}": None for all of the kind' for setting in settings]
    else:
        ways = ['"IGNORE" for some', *(f'"{setting}": None' for setting in settings)]
    yield (
        "What fires now: manage.py graphile_worker alerts\n"
        f'To be told less, in GRAPHILE_WORKER["ALERTS"]: {", or ".join(ways)}.'
    )


def _literal(text: str) -> str:
    return escaped(json.dumps(text, ensure_ascii=False))


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _fields(news: News) -> dict[str, Any]:
    return {**asdict(news.condition), "phase": news.phase, "at": news.at, "more": news.more}


def deliver(message: Message, destination: str, place: Place) -> str:
    """Deliver a message; return what was done. Raise DeliveryError if it was not delivered."""
    try:
        if destination.startswith(TASK_PREFIX):
            task = destination.removeprefix(TASK_PREFIX)
            installation = place.installation if are_installations_named() else None
            job = add_job(task, message.payload, using=place.using, installation=installation)
            return f"added job {job.id}"
        send = partial(_mail, message) if destination == MAIL_ADMINS else partial(_post, message, destination)
        return _bounded(send, (place.using, place.installation, destination))
    except DeliveryError:
        raise
    except Exception as error:  # the mail backend of the project may raise anything
        raise DeliveryError(redact_text(f"{type(error).__name__}: {error}")) from error


class _Sending(threading.Thread):
    """A delivery on a thread of its own: the timeouts of Python are for each read, and mail may have none."""

    def __init__(self, send: Callable[[], str]) -> None:
        super().__init__(name="graphile-worker-alert", daemon=True)
        self._send = send
        self.result = ""
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._send()
        except BaseException as error:
            self.error = error
        finally:
            # Mail backends may use the database.
            connections.close_all()


# The deliveries that took too long, by place and destination.
_late: dict[tuple[str, ...], _Sending] = {}


def _bounded(send: Callable[[], str], key: tuple[str, ...]) -> str:
    """Return the result of a delivery, which goes on alone if it takes too long: then no other starts beside it."""
    if (late := _late.get(key)) and late.is_alive():
        raise DeliveryError("the delivery of an earlier round has not ended")
    sending = _late[key] = _Sending(send)
    sending.start()
    sending.join(LONGEST_DELIVERY)
    if sending.is_alive():
        raise DeliveryError(f"it took longer than {LONGEST_DELIVERY:g} s")
    del _late[key]
    if sending.error is not None:
        raise sending.error
    return sending.result


def _mail(message: Message) -> str:
    if not django_settings.ADMINS:
        raise DeliveryError("the setting ADMINS is empty")
    # From 6.1 on, Django refuses connections of others: the project sets the timeout in MAILERS.
    options = {} if django.VERSION >= (6, 1) else {"connection": _connection()}
    mail_admins(message.subject, f"{message.body}\n", **options)
    number = len(django_settings.ADMINS)
    return f"sent to {number} {'address' if number == 1 else 'addresses'}"


def _connection() -> Any:
    try:
        return get_connection(timeout=django_settings.EMAIL_TIMEOUT or SERVER_TIMEOUT)
    except TypeError:  # not every backend has a timeout
        return get_connection()


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would turn the POST into a GET, whose answer says nothing."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _post(message: Message, url: str) -> str:
    body = json.dumps(message.webhook).encode()
    request = Request(url, data=body, headers={"Content-Type": "application/json"}, method="POST")
    try:
        with build_opener(_NoRedirect).open(request, timeout=SERVER_TIMEOUT) as response:
            return f"answered {response.status}"
    except HTTPError as error:
        with error:
            raise DeliveryError(f"it answered {error.code} {error.reason}") from None
    except (OSError, HTTPException, ValueError) as error:
        # Their texts may have the address, which is a secret.
        reason = getattr(error, "reason", error)
        why = f": {reason}" if isinstance(reason, OSError) else ""
        raise DeliveryError(f"{type(error).__name__}{why}") from None


def label(destination: str) -> str:
    """Return a name of a destination that may be logged: the path of a webhook is a secret."""
    if destination == MAIL_ADMINS or destination.startswith(TASK_PREFIX):
        return destination
    parts = urlsplit(destination)
    return f"{parts.scheme}://{parts.hostname}/…"
