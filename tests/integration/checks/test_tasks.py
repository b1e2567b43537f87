"""The checks of tasks, of their limits and of the crontab."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import Error, Warning  # noqa: A004 - Django's names
from django.db import connection

import django_graphile_worker
from django_graphile_worker import Helpers, Limit, task
from django_graphile_worker.crontab import CronItem
from tests.integration.checks.conftest import found
from tests.support.factories import make_job
from tests.support.rows import in_quotes


class TestTasks:
    def test_two_functions_under_one_identifier(self) -> None:
        @task("send")
        def one(payload: Any) -> None: ...

        @task("send")
        def two(payload: Any) -> None: ...

        assert found() == [
            Error(
                f"2 functions have the task identifier 'send': {one.place} and {two.place}.",
                hint='Give each function its own identifier: @task("billing:send").',
                obj=two,
                id="graphile_worker.E008",
            )
        ]
        assert f"{__file__}:" in found()[0].msg

    def test_an_identifier_that_is_too_long(self) -> None:
        @task("x" * 129)
        def long(payload: Any) -> None: ...

        assert found() == [
            Error(
                f"The task {long.place}: identifier: expected 1 to 128 characters, got 129 characters: {'x' * 40!r}….",
                hint='Choose a shorter identifier: @task("billing:send").',
                obj=long,
                id="graphile_worker.E009",
            )
        ]

    def test_a_parameter_that_nothing_would_fill(self) -> None:
        @task
        def three(a: Any, b: Any, c: Any) -> None: ...

        (message,) = found()
        assert message == Error(
            f"The task 'three', {three.place}: A task takes (payload) or (payload, helpers), but "
            f"{three.function.__qualname__}(a: 'Any', b: 'Any', c: 'Any') -> 'None' also needs 'c'. "
            "Put it into the payload.",
            hint="A job has one payload, any JSON value: def send(payload): ... payload['order'] ...",
            obj=three,
            id="graphile_worker.E017",
        )

    def test_a_second_parameter_that_does_not_look_like_helpers(self) -> None:
        @task
        def adder(x: int, y: int) -> None: ...

        @task
        def untyped(x, y): ...  # type: ignore[no-untyped-def]

        warned = found()
        assert warned[0] == Warning(
            f"The task 'adder', {adder.place}: the second parameter, 'y', receives the worker's helpers, "
            "not a part of the payload.",
            hint="If intended, name it helpers or annotate it with Helpers. If not, move its value into the payload.",
            obj=adder,
            id="graphile_worker.W004",
        )
        assert [(message.id, message.obj) for message in warned[1:]] == [("graphile_worker.W004", untyped)]

    def test_a_second_parameter_that_means_helpers(self) -> None:
        @task
        def named(payload: Any, helpers: Mapping[str, Any]) -> None: ...

        @task
        def annotated(payload: Any, worker: Helpers) -> None: ...

        @task
        def qualified(payload: Any, worker: django_graphile_worker.Helpers) -> None: ...

        @task
        def unused(payload: Any, _worker: int) -> None: ...

        @task
        def optional(payload: Any, dry_run: bool = False) -> None: ...

        assert found() == []


class TestCrontab:
    def test_mistakes_in_every_source_are_reported(self, configure: Any, tmp_path: Path) -> None:
        @task(cron="61 4 * * *")
        def beside(payload: Any) -> None: ...

        crontab = tmp_path / "crontab"
        crontab.write_text("0 4 * * * send_receipt ?fill=soon\n")
        configure(CRONTAB=["99 * * * * send_receipt", CronItem("", "* * * * *"), 5], CRONTAB_FILE=crontab)
        messages = found()
        assert {message.id for message in messages} == {"graphile_worker.E012"}
        text = "\n".join(message.msg for message in messages)
        for source in ('GRAPHILE_WORKER["CRONTAB"] entry 1', f"{crontab} line 1", "@task(cron=...) of beside"):
            assert source in text
        assert "expected a CronItem or crontab text, got '5'" in text

    def test_a_task_that_is_not_registered(self, configure: Any) -> None:
        configure(CRONTAB="0 4 * * * send_reciept")
        (message,) = found()
        assert message.id == "graphile_worker.E013"
        assert message.hint == "Correct the name, or define the task in the tasks.py of an installed app."
        assert message.msg.splitlines()[0] == (
            'GRAPHILE_WORKER["CRONTAB"] line 1, column 11: expected the identifier of a registered task '
            "(did you mean 'send_receipt'?), got 'send_reciept'"
        )

    def test_a_file_that_cannot_be_read(self, configure: Any, tmp_path: Path) -> None:
        configure(CRONTAB_FILE=tmp_path / "missing")
        assert found() == [
            Error(
                f"GRAPHILE_WORKER[\"CRONTAB_FILE\"]: '{tmp_path / 'missing'}' cannot be read: "
                "No such file or directory.",
                hint="Set the path of a readable file. A relative path starts at the directory of the command.",
                id="graphile_worker.E012",
            )
        ]


def limited(identifier: str, *limits: Limit) -> None:
    task(identifier, limit=limits)(lambda payload: None)


def test_tasks_that_share_a_limit__must_agree_on_its_numbers() -> None:
    limited("a", Limit("account:{account}", concurrency=3))
    limited("b", Limit("account:{account}", concurrency=3), Limit("account:{account}", rate="1/s", name="rate"))
    limited("c", Limit("stripe", rate="5/s"))
    assert found() == []
    limited("d", Limit("account:{account}", concurrency=4, fair=True))
    (error,) = found()
    assert error.id == "graphile_worker.E022"
    assert error.msg.startswith("The limit 'account:{account}' has different numbers in its tasks: 3 at once in 'a', ")
    assert ", and 4 at once, fair in 'd', " in error.msg


def test_setting__names_limits_that_exist(configure: Any) -> None:
    limited("a", Limit("account:{account}", rate="10/m"))
    configure(LIMITS={"account:{account}": {"rate": "5/m", "concurrency": 3}})
    assert found() == []
    configure(LIMITS={"acount:{account}": {"rate": "5/m"}})
    (warning,) = found()
    assert warning.id == "graphile_worker.W008"
    assert warning.msg == (
        'GRAPHILE_WORKER["LIMITS"]["acount:{account}"]: no task of this project has a limit \'acount:{account}\'. '
        "Did you mean 'account:{account}'?"
    )
    configure(LIMITS={"account:{account}": {"burst": 10}})
    (error,) = found()
    assert error.id == "graphile_worker.E023"
    assert "the burst is not less than the rate: {'burst': 10} for the limit 10/m." in error.msg


def test_setting_without_any_limit__is_told(configure: Any) -> None:
    configure(LIMITS={"a": {"concurrency": 3}})
    assert [warning.id for warning in found()] == ["graphile_worker.W008"]


@pytest.mark.django_db
class TestOtherWorkers:
    def test_unregistered_worker__is_told_while_limits_are_in_use(self, worker_schema: str) -> None:
        make_job("a", locked_by="worker-ab12", attempts=1)
        with connection.cursor() as cursor:
            table = f"{in_quotes(worker_schema)}._private_workers"
            cursor.execute(f"insert into {table} (id, timeout_seconds) values ('django-worker-ours', 60)")
        make_job("a", locked_by="django-worker-ours/7", attempts=1)
        assert found(databases=["default"]) == []
        limited("a", Limit(concurrency=3))
        (warning,) = found(databases=["default"])
        assert warning.id == "graphile_worker.W007"
        assert warning.msg.endswith(" has workers that are not registered: worker-ab12.")

    def test_session_that_listens_like_node__is_told(self, worker_schema: str, raw_connection: Any) -> None:
        limited("a", Limit(concurrency=3))
        session = raw_connection()
        session.execute('LISTEN "jobs:insert"; LISTEN "worker:migrate";')
        (warning,) = found(databases=["default"])
        assert f"not registered: session {session.info.backend_pid}." in warning.msg
