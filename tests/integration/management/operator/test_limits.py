"""``limits``: list limits and keys, and change numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management.base import CommandError

from django_graphile_worker import Limit, task
from tests.support.factories import minutes_ago
from tests.support.limits import make_key, park_job, run_job
from tests.support.operating import operate
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db
ACCOUNT = "account:{account}"


@pytest.fixture(autouse=True)
def limited_tasks() -> Iterator[None]:
    with own_tasks():
        task("send", limit=Limit(ACCOUNT, concurrency=3, rate="100/m", burst=20))(lambda payload: None)
        task("other", limit=Limit(concurrency=1), fair="{tenant}")(lambda payload: None)
        yield


def test_limits__are_listed_with_the_keys_that_jobs_wait_for() -> None:
    assert "No key is at its limit." in operate("limits").err
    key = make_key(ACCOUNT, "account:42")
    running = run_job(key, "send")
    park_job(key, "send", run_at=minutes_ago(30), blocked_at=minutes_ago(20))
    make_key(ACCOUNT, "account:1")
    lines = [line.split() for line in operate("limits").out.splitlines()]
    assert ["account:{account}", "3", "100/m", "20", "send", "code", "and", "settings"] in lines
    assert ["other", "1", "-", "-", "other", "code", "and", "settings"] in lines
    assert ["account:42", "account:{account}", "1", "20", "m", "ago", "1", "a", "place"] in lines
    told = operate("limits", "--json").json
    assert [limit["name"] for limit in told["limits"]] == [ACCOUNT, "other"]
    (about,) = told["keys"]
    assert (about["key"], about["waiting"], about["running"], about["running_jobs"]) == ("account:42", 1, 1, [running])
    assert [each["key"] for each in operate("limits", "--key", "account:1", "--json").json["keys"]] == ["account:1"]


def test_more_keys__are_told() -> None:
    for number in range(3):
        park_job(make_key(ACCOUNT, f"account:{number}"), "send")
    assert "More keys are at their limit; these are the first 2." in operate("limits", "--limit", "2").err


def test_numbers__are_set_and_reset() -> None:
    told = operate("limits", "--set", ACCOUNT, "--concurrency", "5", "--rate", "1/2s")
    assert told.out == "account:{account}: 5 at once, 1/2s, for all workers from now on.\n"
    assert told.err == "Before: 3 at once, 100/m, burst 20. A number that was not given is no limit any more.\n"
    (limit, _) = operate("limits", "--json").json["limits"]
    assert (limit["concurrency"], limit["rate"], limit["burst"]) == (5, "1/2s", None)
    assert limit["changed_by"]
    assert operate("limits", "--reset", ACCOUNT).out == "account:{account} has the numbers of the code again.\n"
    assert "had the numbers of the code already" in operate("limits", "--reset", ACCOUNT).err
    assert operate("limits", "--json").json["limits"][0]["concurrency"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--set", "acount:{account}", "--rate", "1/s"],
            "there is no limit 'acount:{account}'. Did you mean 'account:{account}'?",
        ),
        (["--reset", "x"], "Known limits: account:{account}, other."),
        (["--set", ACCOUNT], "--set needs --concurrency, --rate or both."),
        (["--set", ACCOUNT, "--rate", "often"], "limits: rate: expected a rate like '100/m'"),
        (["--set", ACCOUNT, "--burst", "5"], "limits: expected a rate with burst=5, got none"),
        (["--rate", "1/s"], "--rate needs --set with the name of a limit."),
    ],
)
def test_mistakes__are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(CommandError) as refused:
        operate("limits", *arguments)
    assert message in str(refused.value)


def test_show__says_which_key_a_job_waits_for() -> None:
    job_id = park_job(make_key(ACCOUNT, "account:42"), "send", blocked_at=minutes_ago(20))
    shown: Any = operate("show", str(job_id)).out
    assert "limited" in shown
    assert "the key 'account:42' is at its limit, 'account:{account}', since 20 m ago" in shown
    assert "1 due; they wait for a limit or for their turn" in operate("status").out
