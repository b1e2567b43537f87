"""The code of the guide to limits does what the page says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from django_graphile_worker import Limit, LimitedUntil, PayloadError, conf
from django_graphile_worker.checks.tasks import check_limits
from django_graphile_worker.limits import definitions, keys_of
from django_graphile_worker.registry import tasks
from django_graphile_worker.testing import run_jobs
from tests.docs.pages import page
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db
GUIDE = page("guides/limits.md")


@pytest.fixture
def shop(capsys: pytest.CaptureFixture[str]) -> Iterator[SimpleNamespace]:
    """Run the code of the page in one module."""
    namespace: dict[str, Any] = {"__name__": "testproject.shop.limits"}
    with own_tasks():
        for block in re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL):
            exec(block, namespace)
        yield SimpleNamespace(**namespace, globals=namespace, printed=capsys.readouterr().out)


def test_keys__are_those_of_the_page(shop: Any) -> None:
    assert keys_of(shop.sync_catalogue, '{"account": 1}') == (("account:{account}", "account:1"),)
    assert keys_of(shop.pack, '{"order": {"account": 42}}') == (("account:{order.account}", "account:42"),)
    assert keys_of(shop.fetch, '{"url": "https://example.org/a"}') == (("host", "example.org"),)
    assert keys_of(shop.export_orders, '{"account": 1}')[-1] == ("export_orders", "export_orders")
    assert check_limits() == []


def test_missing_field__is_told_as_on_the_page(shop: Any) -> None:
    told = " ".join(re.findall(r"^ +# (.*)$", GUIDE, flags=re.MULTILINE))
    assert shop.printed.split() == told.split()
    with pytest.raises(PayloadError):
        shop.pack.add_job({})


def test_jobs__run_and_close_their_key(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert [ran.payload["order"]["id"] for ran in run_jobs()] == [7]

    def refuse(payload: Any) -> None:
        raise shop.TooManyRequests

    shop.globals["call_partner"] = refuse
    shop.tell_partner.add_job({"partner": 1})
    (ran,) = run_jobs(on_error="record")
    assert isinstance(ran.error, LimitedUntil)
    assert ran.retry_in == 30


def test_example__of_a_test_passes(shop: Any) -> None:
    run_jobs()
    shop.test_two_requests_a_second()


def test_setting__overrides_the_numbers_of_limits_of_the_page(shop: Any) -> None:
    settings = conf.Settings.from_mapping(shop.GRAPHILE_WORKER)
    found = {each.name: str(each.numbers) for each in definitions(tasks, settings.limits)}
    assert found["account:{account}"] == "5 at once, 100/m, burst 20"
    assert found["host"] == "5/s"
    assert {name for name, _ in settings.limits} <= set(found)


def test_arguments__are_those_of_limit(shop: Any) -> None:
    table = GUIDE.partition("| argument |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, flags=re.MULTILINE) == list(inspect.signature(Limit).parameters)
