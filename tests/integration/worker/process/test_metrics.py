"""/metrics, /live and /ready of a worker, and the dashboards and alerts that are built on them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import yaml

from django_graphile_worker import PermanentFailure, TaskTimeout, add_job
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.process import metrics
from django_graphile_worker.worker.process.metrics import served
from django_graphile_worker.worker.process.plan import Plan
from tests.support.ports import free_port
from tests.support.prerequisites import find_promtool
from tests.support.scrapes import Scrape, get, scrape
from tests.support.stepped_worker import Build, SteppedRunner, run_all, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)
DEPLOY = Path(__file__).parents[4] / "deploy"
needs_promtool = pytest.mark.skipif(find_promtool() is None, reason="promtool is not installed")


def note(payload: Any) -> None:
    errors = {"fail": ValueError, "give up": PermanentFailure, "time out": TaskTimeout}
    if payload in errors:
        raise errors[payload]("as asked")


@pytest.fixture
def runner() -> Iterator[Build]:
    with stepped_workers(note) as make:
        yield make


@pytest.fixture
def port() -> int:
    return free_port("127.0.0.1")


@pytest.fixture
def serving(runner: Build, port: int) -> Iterator[SteppedRunner]:
    with ExitStack() as stack:
        stepped = runner.runner()
        stack.enter_context(served(plan(port), [stepped]))
        yield stepped


def plan(port: int) -> Plan:
    return Plan(overrides={"metrics_port": f"127.0.0.1:{port}"})


@pytest.fixture
def found(serving: SteppedRunner, port: int, wait_until: Callable[..., None]) -> Scrape:
    """A scrape after jobs with different ends."""
    for payload in ("", "fail", "give up", "time out"):
        add_job("note", payload)
    add_job("note", "", queue_name="mail")
    run_all(serving.worker, wait_until)
    return scrape(port)


def test_metrics__count_each_outcome_once(found: Scrape) -> None:
    numbers = {name: found.sum("jobs_total", task="note", outcome=name) for name in ("succeeded", "failed")}
    assert numbers == {"succeeded": 2, "failed": 2}
    assert found.value("jobs_total", task="note", queue="mail", outcome="succeeded") == 1
    assert found.sum("jobs_total", outcome="permanently_failed") == 1
    assert found.sum("jobs_timed_out_total") == 1
    assert found.sum("jobs_claimed_total") == found.sum("job_run_seconds_count") == 5
    assert found.value("workers") == 1
    assert found.value("backlog_jobs", task="note", state="retrying") == 2
    # The metrics of the project itself.
    assert "process_cpu_seconds_total" in found.names


def test_jobs_that_are_returned_before_they_begin__are_not_interrupted(
    serving: SteppedRunner, port: int, wait_until: Callable[..., None]
) -> None:
    for _ in range(3):
        add_job("note", "")
    serving.worker.pool.begin_no_more()
    serving.worker.fetcher.step()
    wait_until(lambda: serving.worker.pool.is_idle)
    serving.worker.releaser.step()
    found = scrape(port)
    assert found.sum("jobs_claimed_total") == found.sum("jobs_returned_total") == 3
    assert found.sum("jobs_total") == found.sum("job_run_seconds_count") == 0


def test_process_that_a_job_forks__does_not_keep_the_port(runner: Build, port: int) -> None:
    """It may outlive the worker, and the next worker needs the port."""
    fork_guard.watch()
    stepped = runner.runner()
    reader, writer = os.pipe()
    with served(plan(port), [stepped]):
        pid = os.fork()
        if pid == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        os.close(reader)
        assert get(port, "/live").status == 200
    try:
        with served(plan(port), [stepped]):
            assert get(port, "/live").status == 200
    finally:
        os.close(writer)
        os.waitpid(pid, 0)


def test_probes__say_why_not(serving: SteppedRunner, port: int) -> None:
    worker = serving.worker
    assert get(port, "/live") == get(port, "/ready") == (200, "ok\n")
    assert get(port, "/other").status == 404
    worker.fetcher.trouble = psycopg.OperationalError("connection refused")
    assert get(port, "/ready") == (503, "default: the database does not answer: connection refused\n")
    worker.fetcher.trouble = None
    worker.heartbeat._last_beat -= 1000
    assert get(port, "/ready") == (503, "default: no heartbeat is written\n")
    worker.is_stopping = True
    assert get(port, "/ready") == (503, "default: the worker stops\n")
    assert get(port, "/live").status == 200
    worker.heartbeat._thread = threading.Thread()
    assert get(port, "/live") == (503, "default: the heartbeat has ended\n")
    worker.heartbeat._thread = None


def test_probes__cost_little(serving: SteppedRunner, port: int) -> None:
    began = time.process_time()
    for _ in range(20):
        get(port, "/live")
        get(port, "/ready")
    # Of the client, too.
    assert (time.process_time() - began) / 40 < 0.02


def test_probes_work_without_the_package(serving: SteppedRunner, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "find_spec", lambda name: None)
    assert get(port, "/live").status == get(port, "/ready").status == 200
    response = get(port, "/metrics")
    assert response.status == 501
    assert 'pip install "django-graphile-worker[prometheus]"' in response.text


def test_port_that_is_taken__is_an_error_at_the_start(serving: SteppedRunner, port: int) -> None:
    with pytest.raises(GraphileWorkerError, match=rf"^METRICS_PORT: cannot listen on 127\.0\.0\.1:{port}: "):
        with served(plan(port), [serving]):
            raise AssertionError("it must not begin")


def test_worker_without_the_setting__counts_nothing(runner: Build) -> None:
    stepped = runner.runner()
    with served(Plan(), [stepped]):
        assert stepped.worker.metrics is None


def test_supervisor_that_does_not_look_after_its_children__is_not_live() -> None:
    children = metrics.ChildrenMetrics(*Pipe(duplex=False))
    assert children.why_not_ready() == ["no process has started yet"]
    supervisor: Any = SimpleNamespace(worker_timeout=60.0, seconds_since_turn=lambda: 61.0)
    children.supervisor = supervisor
    assert children.why_not_live() == ["the supervisor has not looked after its processes for 61 s"]


@needs_promtool
def test_promtool_finds_nothing_to_improve(found: Scrape) -> None:
    run_promtool("check", "metrics", stdin=found.text)


@needs_promtool
def test_alert_rules__are_valid_and_fire() -> None:
    run_promtool("check", "rules", "graphile_worker.rules.yml")
    run_promtool("test", "rules", "graphile_worker.tests.yml")


def run_promtool(*arguments: str, stdin: str = "") -> None:
    done = subprocess.run(
        [str(find_promtool()), *arguments], cwd=DEPLOY / "prometheus", input=stdin, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


def test_dashboard_and_rules__use_metrics_and_labels_that_exist(found: Scrape) -> None:
    labels: dict[str, set[str]] = {}
    for sample in found.samples:
        labels.setdefault(sample.name, set()).update(sample.labels)
    expressions = [*dashboard_expressions(), *rule_expressions()]
    assert len(expressions) > 25
    for expression in expressions:
        used = re.findall(r"(graphile_worker_\w+)(?:\{([^}]*)\})?", expression)
        assert used, expression
        for name, selector in used:
            assert name in labels, expression
            assert set(re.findall(r"(\w+)\s*[=!]", selector)) <= labels[name], expression


def dashboard_expressions() -> Iterable[str]:
    dashboard = json.loads((DEPLOY / "grafana" / "graphile_worker.json").read_text())
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def rule_expressions() -> Iterable[str]:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "graphile_worker.rules.yml").read_text())
    return [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
