"""Headers: what travels beside the payload of a job, from add_job() to its task, middleware and the log."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from django_graphile_worker import Helpers, JobSpec, add_job, add_jobs, current_job, get_job, models, task
from django_graphile_worker.exceptions import GraphileWorkerError, InvalidJobError
from django_graphile_worker.logs import JobFilter
from django_graphile_worker.registry import tasks
from django_graphile_worker.testing import run_jobs

pytestmark = pytest.mark.django_db

HEADERS: dict[str, Any] = {"tenant": "acme", "user": 7, "ratio": 0.5, "beta": True, "none": None, "ü\x00": "\"\\'{}"}
logger = logging.getLogger("shop.deep.inside")
seen: list[Any] = []


@pytest.fixture(autouse=True)
def _own_tasks() -> Iterator[None]:
    seen.clear()
    with tasks.isolated():
        yield


def remember_middleware(get_result: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def middleware(job: Any) -> Any:
        seen.append(("middleware", job.headers))
        return get_result(job)

    return middleware


def test_task_and_middleware_get_what_was_added(settings: Any) -> None:
    settings.GRAPHILE_WORKER = {"MIDDLEWARE": [f"{__name__}.remember_middleware"]}

    @task
    def charge(payload: Any, helpers: Helpers) -> None:
        seen.append((payload, helpers.headers))

    job = charge.add_job({"order": 1}, headers=HEADERS)
    assert job.headers == HEADERS
    assert models.Job.objects.get().payload == {"order": 1}
    run_jobs()
    assert seen == [("middleware", HEADERS), ({"order": 1}, HEADERS)]


@pytest.mark.parametrize("returning", [True, False])
def test_add_jobs__each_has_its_own(returning: bool) -> None:
    specs = [JobSpec("a", n, headers={"n": n} if n else None, flags=["slow"], expires=60) for n in range(3)]
    add_jobs(specs, returning=returning)
    found = [get_job(job.id) for job in models.Job.objects.order_by("id")]
    assert [job.headers for job in found if job] == [{}, {"n": 1}, {"n": 2}]
    assert all("slow" in job.flags and job.expires_at for job in found if job)


def test_replaced_job__has_the_headers_of_the_new_one() -> None:
    add_job("a", headers={"tenant": "a"}, job_key="k")
    assert add_job("a", headers={"tenant": "b"}, job_key="k").headers == {"tenant": "b"}
    assert add_job("a", job_key="k").headers == {}


def test_django_tasks(framework: Any) -> None:
    result = framework.add.using(headers={"tenant": "acme"}).enqueue(1)
    # Late import: the framework is set up by the fixture.
    from django_graphile_worker.backend.results import job_id_of

    job = get_job(job_id_of(result.id, "default") or 0)
    assert job is not None
    assert job.headers == {"tenant": "acme"}


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([("a", 1)], "headers: expected a dict, got list"),
        ({1: 2}, "headers: expected names that are strings, got 1"),
        ({"a": [1]}, "headers: expected a string, a number, True, False or None as 'a', got list"),
        ({"a": "\ud800"}, "headers: expected text without half a surrogate pair"),
        ({"a": float("nan")}, "headers: expected a number that JSON has as 'a', got nan"),
        ({"a": "x" * 9_000}, "headers: expected at most 8000 characters as JSON, got 9016"),
    ],
)
def test_invalid_headers__are_refused(headers: Any, message: str) -> None:
    with pytest.raises(GraphileWorkerError) as raised:
        add_job("a", headers=headers)
    assert str(raised.value).startswith(message)
    assert not models.Job.objects.exists()


@pytest.mark.parametrize(
    ("flag", "headers"),
    [
        (
            'headers:{"a": 1, "b": [1], "c": NaN, "d": 1e999, "e": "\\ud800", "f\\udfff": null}',
            {"a": 1, "b": None, "c": None, "d": None, "e": "?", "f?": None},
        ),
        ("headers:" + "[" * 900 + "]" * 900, {}),
        ('headers:{"a": ' + "[" * 900 + "]" * 900 + "}", {"a": None}),
        ("headers:" + "[" * 100_000, {}),
        ("headers:1", {}),
    ],
    ids=["values", "no object", "nested", "deep", "number"],
)
def test_headers_of_another_program__are_read_as_far_as_they_can_be(flag: str, headers: Any) -> None:
    job = dataclasses.replace(add_job("a"), flags=frozenset({flag}))
    assert job.headers == headers
    json.dumps(job.headers, allow_nan=False).encode()


def test_flag_that_is_no_json__is_refused() -> None:
    with pytest.raises(InvalidJobError, match="expected 'headers:' to be followed by a JSON object"):
        add_job("a", flags=["headers:tenant"])


def test_with_headers__replaces_equal_names() -> None:
    spec = JobSpec("a", {"n": 1}, priority=3, headers={"a": 1, "b": 2}).with_headers({"b": 3})
    assert (spec.headers, spec.payload, spec.priority) == ({"a": 1, "b": 3}, {"n": 1}, 3)


def _log_deep_inside() -> None:
    job = current_job()
    seen.append(job and job.id)
    logger.warning("inside")


def test_lines_of_a_task__have_its_job_whichever_logger(caplog: pytest.LogCaptureFixture) -> None:
    @task
    def plain(payload: Any) -> None:
        _log_deep_inside()

    @task
    async def coroutine(payload: Any) -> None:
        await asyncio.sleep(0)
        _log_deep_inside()
        await sync_to_async(_log_deep_inside)()

    caplog.handler.addFilter(job_filter := JobFilter())
    try:
        first = plain.add_job(headers={"tenant": "acme", "api_token": "s3cret"})
        second = coroutine.add_job(headers={"tenant": "b"})
        run_jobs()
        _log_deep_inside()
    finally:
        caplog.handler.removeFilter(job_filter)
    lines = [vars(record) for record in caplog.records if record.name == logger.name]
    assert [(line["job_id"], line["task_identifier"], line["attempt"], line["job"]) for line in lines] == [
        (first.id, "plain", 1, f"plain #{first.id} (1)"),
        *[(second.id, "coroutine", 1, f"coroutine #{second.id} (1)")] * 2,
        (None, None, None, "-"),
    ]
    assert [line["headers"] for line in lines] == [
        {"tenant": "acme", "api_token": "••••••"},
        {"tenant": "b"},
        {"tenant": "b"},
        None,
    ]
    assert seen == [first.id, second.id, second.id, None]
