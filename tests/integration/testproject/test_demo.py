"""What a newcomer sees first: the demo works, says where to look, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
from django.conf import settings

from testproject import embedded
from testproject.shop import schedules

MANAGE = Path(embedded.__file__).parent / "manage.py"


@pytest.fixture
def environment(fresh_database: Callable[[], str]) -> dict[str, str]:
    return os.environ | {"DATABASE_URL": fresh_database(), "DJANGO_SETTINGS_MODULE": "testproject.settings"}


@contextmanager
def _demo(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A running demo, as a person would see it; ended with everything it started if the test fails."""
    demo = subprocess.Popen(
        [sys.executable, str(MANAGE), "demo", "--port", "0"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield demo
    finally:
        if demo.poll() is None:
            started = psutil.Process(demo.pid).children(recursive=True)
            demo.kill()
            for process in started:
                process.kill()
        demo.communicate()


def _read_until(demo: subprocess.Popen[str], pattern: str) -> str:
    """What the demo says up to the first line that matches."""
    assert demo.stdout is not None
    said = ""
    for line in demo.stdout:
        said += line
        if re.search(pattern, line):
            return said
    pytest.fail(f"Expected the demo to say {pattern!r}, got:\n{said}")


@pytest.mark.chaos
def test_once__runs_every_kind_of_job_and_shows_what_became_of_it(environment: dict[str, str]) -> None:
    shown = subprocess.run(
        [sys.executable, str(MANAGE), "demo", "--once"], env=environment, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert "Traceback" not in shown.stdout
    lines = shown.stdout.splitlines()
    for task, outcome in [
        ("send_receipt", "succeeded"),
        ("charge_card", "succeeded at attempt 2"),
        ("print_invoice", "permanently failed"),
        ("move_stock", "succeeded"),
        ("refresh_search_index", "succeeded"),
        ("fetch_exchange_rates", "succeeded"),
        ("ask_for_review", "succeeded"),
        ("book_payment", "succeeded"),
    ]:
        assert any(task in line and outcome in line for line in lines), f"{task}: {outcome}\n{shown.stdout}"
    # Once among what the worker did, once among what is left: given up at its first attempt.
    assert sum("print_invoice" in line and "  1 of 3  " in line for line in lines) == 2, shown.stdout
    with psycopg.connect(environment["DATABASE_URL"]) as connection:
        text = f'select name from "{settings.GRAPHILE_WORKER["SCHEMA"]}"._private_schedules'
        found = connection.execute(text.encode()).fetchall()
    assert {name for (name,) in found} == {each["name"] for each in schedules.examples()}


def test_demo__serves_the_site_and_ends_cleanly(environment: dict[str, str]) -> None:
    with _demo(environment) as demo:
        said = _read_until(demo, "send_receipt")
        children = psutil.Process(demo.pid).children(recursive=True)
        address = re.search(r"Admin: (http://\S+)", said)
        assert address is not None
        with urllib.request.urlopen(address[1]) as response:
            assert b"Log in" in response.read()
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=60)
        assert demo.returncode == 0
        assert "Traceback" not in said + rest
        assert rest.endswith("Bye.\n")
        assert not psutil.wait_procs(children, timeout=60)[1]
