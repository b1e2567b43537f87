from __future__ import annotations

import asyncio
import copy
import functools
import importlib
import inspect
import pickle
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from django_graphile_worker import task
from django_graphile_worker.checks.tasks import check_tasks
from django_graphile_worker.exceptions import GraphileWorkerError, InvalidJobError, InvalidTypeError
from django_graphile_worker.job_options import JobKeyMode
from django_graphile_worker.registry import (
    MAX_CODENAME_LENGTH,
    Registry,
    Task,
    identifier_for,
    label_of,
    schedule_codename,
    split_identifier,
    tasks,
    valid_schedulable,
)


@pytest.fixture(autouse=True)
def registry() -> Iterator[Registry]:
    with tasks.isolated() as isolated:
        yield isolated


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a module and import it."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, source: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(f"from django_graphile_worker import task\n{source}")
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return make


with tasks.isolated():

    @task
    def module_level(payload: Any) -> Any:
        """Do it."""
        return payload


def test_a_task_is_registered_under_its_functions_name(registry: Registry) -> None:
    @task
    def send_email(payload: Any) -> None: ...

    assert isinstance(send_email, Task)
    assert send_email.identifier == "send_email"
    assert registry.get("send_email") is send_email
    assert "send_email" in registry
    assert send_email in list(registry)


def test_calling_a_task_just_calls_the_function() -> None:
    @task
    def add(left: int, right: int = 2) -> int:
        """Add them."""
        return left + right

    assert add(1) == 3
    assert add(1, right=5) == 6
    assert (add.__name__, add.__doc__, add.__module__) == ("add", "Add them.", __name__)
    assert list(inspect.signature(add).parameters) == ["left", "right"]


def test_calling_an_async_task_makes_its_coroutine() -> None:
    @task
    async def double(payload: int) -> int:
        return payload * 2

    assert double.is_async
    assert inspect.iscoroutinefunction(double.function)
    assert asyncio.run(double(4)) == 8


def test_options_become_defaults() -> None:
    @task(
        queue_name="mail",
        priority=-5,
        max_attempts=3,
        flags={"slow"},
        job_key="k",
        job_key_mode="preserve_run_at",
        atomic=True,
        backoff=timedelta(seconds=5),
        cron=["0 4 * * *", "@hourly"],
    )
    def send(payload: Any) -> None: ...

    assert send.defaults.queue_name == "mail"
    assert send.defaults.priority == -5
    assert send.defaults.max_attempts == 3
    assert send.defaults.flags == ("slow",)
    assert send.defaults.job_key == "k"
    assert send.defaults.job_key_mode is JobKeyMode.PRESERVE_RUN_AT
    assert send.atomic
    assert send.backoff == timedelta(seconds=5)
    assert send.cron == ("0 4 * * *", "@hourly")


def test_exceptions_may_be_one_class_or_several() -> None:
    made = task(give_up_on=LookupError, retry_for=[OSError, TimeoutError])(a_function)
    assert (made.give_up_on, made.retry_for) == ((LookupError,), (OSError, TimeoutError))
    mistakes: list[Any] = ["LookupError", LookupError("x"), [int]]
    for wrong in mistakes:
        with pytest.raises(InvalidTypeError, match=r"^@task\(give_up_on=\.\.\.\): expected exception classes, got"):
            task(give_up_on=wrong)


def a_function(payload: Any) -> None: ...


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"priority": 40_000}, InvalidJobError, "priority: expected a whole number from -32768 to 32767, got 40000."),
        ({"job_key": 5}, InvalidTypeError, "job_key: expected a string, got 5 (int)."),
        (
            {"cron": 5},
            InvalidTypeError,
            "@task(cron=...): expected a schedule like '0 4 * * *', or a list of them, got 5.",
        ),
        (
            {"cron": []},
            InvalidTypeError,
            "@task(cron=...): expected a schedule like '0 4 * * *', or a list of them, got [].",
        ),
        (
            {"every": "30s"},
            InvalidTypeError,
            "@task(every=...): expected a timedelta or a number of seconds, got '30s'.",
        ),
        ({"every": 0.5}, InvalidJobError, "@task(every=...): expected 1 second to ten years, got 0.5."),
        (
            {"every": 30, "cron": "0 4 * * *"},
            InvalidTypeError,
            "@task takes cron or every, not both. Make a Schedule for one of them.",
        ),
        (
            {"backoff": "5"},
            InvalidTypeError,
            "@task(backoff=...): expected a timedelta, a number of seconds or a callable, got '5'.",
        ),
        ({"backoff": -5}, InvalidJobError, "@task(backoff=...): expected a delay of zero or more, got -5."),
        ({"identifier": ""}, InvalidJobError, "@task: a task identifier has 1 to 128 characters, got ''."),
        (
            {"identifier": 5},
            InvalidTypeError,
            "@task: expected a function or a task identifier (str), got 5.",
        ),
    ],
)
def test_options_are_checked_when_the_decorator_is_written(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as refused:
        task(**options)
    assert str(refused.value) == message


QUEUES = (
    "A queue_name makes jobs run one at a time, in order. To choose the workers that run a task, start them with "
    "runworker --tasks NAME, or give its jobs flags=[...] and use runworker --forbid-flag."
)
OPTIONS = (
    "identifier, queue_name, max_attempts, job_key, job_key_mode, priority, flags, unique, atomic, backoff, "
    "give_up_on, retry_for, cron, every, keep_result, timeout, expires, limit, fair, schedulable"
)


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("prioritty", "Did you mean 'priority'?"),
        ("queue", QUEUES),
        ("max_retries", "Did you mean 'max_attempts'?"),
        ("name", "Did you mean 'identifier'?"),
        ("bind", "A task that takes (payload, helpers) gets its job as helpers.job."),
        ("x", f"Known options: {OPTIONS}."),
    ],
)
def test_an_unknown_option_is_refused__with_the_one_that_was_meant(name: str, way_out: str) -> None:
    with pytest.raises(InvalidTypeError) as refused:
        task(**{name: 5})  # type: ignore[call-overload]
    assert str(refused.value) == f"@task has no option {name!r}. {way_out}"


def yielding(payload: Any) -> Iterator[None]:
    yield


async def yielding_asynchronously(payload: Any) -> Any:
    yield


class Yielding:
    def __call__(self, payload: Any) -> Iterator[None]:
        yield


@pytest.mark.parametrize(
    "function",
    [yielding, yielding_asynchronously, functools.partial(yielding, 1), Yielding()],
    ids=["def", "async", "partial", "object"],
)
def test_a_generator_is_refused__as_calling_it_would_run_nothing(registry: Registry, function: Any) -> None:
    with pytest.raises(InvalidTypeError, match=r"^@task: .* is a generator: calling it runs nothing of its body"):
        task("yields")(function)
    assert registry.get("yields") is None


def test_atomic_needs_a_plain_function(registry: Registry) -> None:
    async def send(payload: Any) -> None: ...

    with pytest.raises(InvalidTypeError) as refused:
        task(atomic=True)(send)
    line = send.__code__.co_firstlineno
    assert str(refused.value) == (
        f"@task(atomic=True): {__name__}:test_atomic_needs_a_plain_function.<locals>.send ({__file__}:{line}) "
        "is async, and Django's transactions need 'def'. Write 'def', or omit atomic."
    )
    assert registry.get("send") is None


def test_a_function_without_a_name_needs_an_identifier() -> None:
    with pytest.raises(InvalidTypeError, match=r'^@task: .* has no name: write @task\("a_name"\)\.$'):
        task(lambda payload: None)
    assert task("named")(lambda payload: None).identifier == "named"


def test_a_class_is_not_a_task() -> None:
    with pytest.raises(InvalidTypeError, match=r"^@task: expected a function, got <class 'dict'>\.$"):
        task(dict)


def test_a_task_is_not_decorated_twice() -> None:
    with pytest.raises(InvalidTypeError) as refused:
        task("again")(module_level)
    assert str(refused.value) == ("@task: the function is the task 'module_level' already: decorate it once.")


def test_partials_and_callable_objects_can_be_tasks() -> None:
    class Sender:
        async def __call__(self, payload: Any) -> None: ...

    assert task("object")(Sender()).is_async
    partial = task(functools.partial(a_function))
    assert (partial.identifier, partial.is_async) == ("a_function", False)


def test_a_second_function_under_one_identifier_is_recorded__not_raised(registry: Registry) -> None:
    @task("send")
    def first(payload: Any) -> None: ...

    @task("send")
    def second(payload: Any) -> None: ...

    assert registry.duplicates == ((first, second),)
    assert registry.get("send") is first


def test_a_reloaded_module_replaces_its_tasks(registry: Registry, make_module: Any) -> None:
    module = make_module("reloaded_tasks", "@task\ndef send(payload): ...\n")
    before = module.send
    make_module("reloaded_tasks", "# Edited: the function moves down a line.\n@task\ndef send(payload): ...\n")
    module = sys.modules["reloaded_tasks"]
    importlib.reload(module)
    assert registry.get("send") is module.send is not before
    assert registry.duplicates == ()


def test_one_file_under_two_module_names_is_no_duplicate(registry: Registry, make_module: Any) -> None:
    module = make_module("imported_tasks", "@task\ndef send(payload): ...\n")
    specification = importlib.util.spec_from_file_location("project.imported_tasks", module.__file__)
    assert specification
    assert specification.loader
    specification.loader.exec_module(importlib.util.module_from_spec(specification))
    assert registry.duplicates == ()


def test_same_names_in_one_module_are_a_duplicate(registry: Registry, make_module: Any) -> None:
    source = "@task\ndef send(payload): ...\nfirst = send\n@task\ndef send(payload): return 2\n"
    module = make_module("twice_tasks", source)
    assert registry.duplicates == ((module.first, module.send),)
    (message,) = check_tasks()
    assert message.id == "graphile_worker.E008"
    assert f"{module.__file__}:2" in message.msg
    assert f"{module.__file__}:5" in message.msg


def test_a_task_is_pickled_and_copied_by_name() -> None:
    assert pickle.loads(pickle.dumps(module_level)) is module_level
    assert copy.deepcopy(module_level) is module_level


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("delay", "Did you mean add_job({...})?"),
        ("apply_async", "Did you mean add_job({...}, run_at=...)?"),
        (
            "delay_on_commit",
            "Did you mean add_job({...})? A job is part of the transaction, and runs after its commit.",
        ),
        ("name", "Did you mean 'identifier'?"),
        ("s", "Did you mean JobSpec(task, {...})? For a chain, add the next job at the end of the task."),
        ("add_jbo", "Did you mean 'add_job'?"),
        ("retry", "Did you mean 'raise RetryLater(seconds)'?"),
    ],
)
def test_an_attribute_of_another_queue_s_tasks_is_answered_with_ours(name: str, way_out: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(module_level, name)
    assert str(refused.value) == f"The task 'module_level' has no attribute {name!r}. {way_out}"


@pytest.mark.parametrize(
    ("given", "default", "expected"),
    [
        (None, None, None),
        (None, 30.0, 30.0),
        (5, 30.0, 5.0),
        (timedelta(minutes=2), None, 120.0),
        (False, 30.0, None),
    ],
)
def test_timeout__wins_over_the_setting(given: Any, default: float | None, expected: float | None) -> None:
    with tasks.isolated() as registry:
        registry.has_time_limits = False
        assert task(timeout=given)(a_function).time_limit(default) == expected
        assert registry.has_time_limits is bool(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (True, "expected a timedelta, a number of seconds, or False for no time limit, got True."),
        ("30", "expected a timedelta, a number of seconds, or False for no time limit, got '30'."),
        (0, "expected 0.1 seconds to ten years, got 0. For no time limit: False."),
        (-1, "expected a delay of zero or more, got -1."),
        (float("nan"), "expected a delay in seconds, got nan."),
        (timedelta(days=9999), "expected 0.1 seconds to ten years, got "),
    ],
)
def test_timeout_of_another_kind__is_refused(given: Any, message: str) -> None:
    with pytest.raises(GraphileWorkerError) as refused:
        task(timeout=given)
    assert str(refused.value).startswith(f"@task(timeout=...): {message}")


@pytest.mark.parametrize(
    ("given", "without_a_setting", "with_a_setting"),
    [
        (None, None, 5.0),
        (True, 86_400.0, 5.0),
        (False, None, None),
        (timedelta(hours=1), 3600.0, 3600.0),
        (90, 90.0, 90.0),
    ],
)
def test_keep_result__wins_over_the_setting(
    given: Any, without_a_setting: float | None, with_a_setting: float | None
) -> None:
    kept = task(keep_result=given)(a_function)
    assert kept.result_seconds(None) == without_a_setting
    assert kept.result_seconds(5.0) == with_a_setting


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("an hour", "expected a timedelta, a number of seconds, True or False, got 'an hour'."),
        (-5, "expected a delay of zero or more, got -5."),
        (0, "expected 1 second to ten years, got 0. To keep no result: False."),
        (timedelta(days=4000), "expected 1 second to ten years, got datetime.timedelta(days=4000). To keep no result"),
    ],
)
def test_keep_result_of_another_kind__is_refused(given: Any, message: str) -> None:
    with pytest.raises((InvalidTypeError, InvalidJobError)) as refused:
        task(keep_result=given)
    assert str(refused.value).startswith(f"@task(keep_result=...): {message}")


@pytest.mark.parametrize(
    ("path", "label", "identifier"),
    [
        ("shop.tasks.send", "default", "shop.tasks.send"),
        ("shop.tasks.send", "emails", "shop.tasks.send@emails"),
        ("shop.tasks.send", "a@b", "shop.tasks.send@a@b"),
    ],
)
def test_identifier__tells_the_path_and_the_label(path: str, label: str, identifier: str) -> None:
    assert identifier_for(path, label) == identifier
    assert split_identifier(identifier) == (path, label)
    assert label_of(identifier) == label


@pytest.mark.parametrize("value", [True, False, "billing.schedule_reports", "billing.schedule.reports"])
def test_valid_schedulable__takes_yes_no_and_permissions(value: bool | str) -> None:
    assert valid_schedulable(value) == value


@pytest.mark.parametrize("value", [None, 1, "", "schedule_reports", ".codename", "billing.", "a b.c", b"billing.x"])
def test_valid_schedulable__refuses_what_is_no_permission(value: object) -> None:
    with pytest.raises(InvalidTypeError, match=r"expected True, False, or a permission like 'billing\.schedule"):
        valid_schedulable(value)


def test_task__is_not_schedulable_unless_it_says_so() -> None:
    with tasks.isolated():

        @task
        def plain(payload: object) -> None: ...

        @task(schedulable=True)
        def open_to_users(payload: object) -> None: ...

        @task(schedulable="billing.schedule_reports")
        def with_a_permission(payload: object) -> None: ...

    found = (plain.schedulable, open_to_users.schedulable, with_a_permission.schedulable)
    assert found == (False, True, "billing.schedule_reports")


def test_schedule_codename__of_long_identifiers_fits_and_differs() -> None:
    names = {schedule_codename("a" * number) for number in range(80, 129)}
    assert len(names) == 49
    assert max(map(len, names)) == MAX_CODENAME_LENGTH


@pytest.mark.parametrize("wrong", [datetime(2026, 6, 1, tzinfo=UTC), True, False, "1h"])
def test_expires__takes_a_duration_only(wrong: Any) -> None:
    with pytest.raises(InvalidTypeError, match=r"^@task\(expires=\.\.\.\): expected"):
        task(expires=wrong)


def test_expires__is_kept_as_seconds() -> None:
    @task(expires=timedelta(minutes=2))
    def send(payload: Any) -> None: ...

    assert send.expires == 120
