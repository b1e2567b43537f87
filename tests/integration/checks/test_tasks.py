"""Checks of registered tasks and the crontab."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.checks import Error, Warning  # noqa: A004 - Django's names

import django_graphile_worker
from django_graphile_worker import Helpers, task
from django_graphile_worker.crontab import CronItem
from tests.integration.checks.conftest import found


class TestTasks:
    def test_two_functions_under_one_identifier(self) -> None:
        @task("send")
        def one(payload: Any) -> None: ...

        @task("send")
        def two(payload: Any) -> None: ...

        assert found() == [
            Error(
                f"The task identifier 'send': expected one function, got 2: {one.place} and {two.place}.",
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
            f"The task 'three', {three.place}: expected a task that takes (payload) or (payload, helpers), got "
            f"{three.function.__qualname__}(a: 'Any', b: 'Any', c: 'Any') -> 'None': no argument would fill 'c'. "
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
                f'GRAPHILE_WORKER["CRONTAB_FILE"]: expected a file that can be read, got '
                f"'{tmp_path / 'missing'}': No such file or directory.",
                hint="Set the path of a readable file. A relative path starts at the directory of the command.",
                id="graphile_worker.E012",
            )
        ]

    def test_a_crontab_without_mistakes(self, configure: Any) -> None:
        configure(CRONTAB="0 4 * * * send_receipt")
        assert found() == []
