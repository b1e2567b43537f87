"""The code of the guides to results and to the history does what the pages say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.template import Context, Template
from django.test import RequestFactory

from django_graphile_worker import Worker, add_job, conf, models, progress_token, result, run_once
from django_graphile_worker.admin.history import parse_history_search
from django_graphile_worker.registry import tasks
from django_graphile_worker.results.waiting import close_listeners
from django_graphile_worker.sql.results import HistoryOutcome
from tests.docs.pages import page

pytestmark = pytest.mark.django_db(transaction=True)
# On a busy machine, a worker may need longer than a site waits.
RESULTS = page("guides/results-and-progress.md").replace("timeout=5", "timeout=60")


@pytest.fixture
def shop() -> Iterator[SimpleNamespace]:
    """Run the code of the page in one module."""
    namespace: dict[str, Any] = {"__name__": "testproject.shop.results"}
    with tasks.isolated():
        for block in re.findall(r"```python\n(.*?)```", RESULTS, flags=re.DOTALL):
            exec(block, namespace)
        yield SimpleNamespace(**namespace)
    close_listeners()


def test_result__is_read_as_the_page_says(shop: Any) -> None:
    job = shop.count_words.add_job({"text": "one two three"})
    assert shop.words_of(job.id) == "waiting"
    assert run_once() == 0
    assert shop.words_of(job.id) == 3
    assert shop.words_of(4711) is None


def test_wait__returns_what_the_task_of_a_running_worker_returned(shop: Any) -> None:
    worker = Worker()
    worker.start()
    try:
        assert shop.count_now("four words in here") == 4
    finally:
        worker.stop()


def test_progress__is_stored_with_the_result(shop: Any) -> None:
    job = shop.export.add_job({"pages": ["a", "b", "c"]})
    assert run_once() == 0
    found = result(job)
    assert found is not None
    assert found.value == {"pages": 3}
    assert found.progress is not None
    assert (found.progress.done, found.progress.message, found.progress.percent) == (3, "page 3 of 3", 100)


def test_statuses__are_those_of_the_page(shop: Any) -> None:
    section = RESULTS.partition("## Read a result")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", section, flags=re.MULTILINE) == [each.value for each in shop.ResultStatus]


def test_tag__renders(shop: Any) -> None:
    (source,) = re.findall(r"```html\n(.*?)```", RESULTS, flags=re.DOTALL)
    assert "<progress" in Template(source).render(Context({"job": add_job("count_words")}))


def test_json__has_the_fields_of_the_page(shop: Any, client: Any) -> None:
    (source,) = re.findall(r"```json\n(.*?)```", RESULTS, flags=re.DOTALL)
    job = shop.export.add_job({"pages": ["a"]})
    run_once()
    told = client.get(f"/jobs/{progress_token(job)}.json").json()
    assert told.keys() == json.loads(source).keys()
    assert told["progress"].keys() == json.loads(source)["progress"].keys()


def test_permission__is_a_setting_and_a_function(shop: Any) -> None:
    assert conf.Settings.from_mapping(shop.GRAPHILE_WORKER).progress_permission == "shop.permissions.may_see_job"
    request = RequestFactory().get("/")
    request.user, request.session = SimpleNamespace(is_staff=False), {"jobs": [7]}  # type: ignore[assignment]
    assert [shop.may_see_job(request, job_id) for job_id in (7, 8)] == [True, False]


def test_history__takes_the_settings_and_the_searches_of_its_page() -> None:
    text = page("guides/history.md")
    (source,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    assert conf.Settings.from_mapping(namespace["GRAPHILE_WORKER"]).history == 30 * 86_400
    rows = re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE)
    searches = [search for row in rows for search in re.findall(r"`([^`]+)`", row)]
    assert len(searches) > 8
    assert [parse_history_search(search, sees_payloads=True).errors for search in searches] == [()] * len(searches)
    assert models.PastAttempt._meta.default_permissions == ("view",)


def test_outcomes_of_the_history__are_those_of_its_page() -> None:
    (row,) = re.findall(r"^\| `outcome:.*$", page("guides/history.md"), flags=re.MULTILINE)
    named = re.findall(r"`(\w+)`", row.split("|")[2])
    assert named == [each.name.lower() for each in HistoryOutcome]
    assert [parse_history_search(f"outcome:{name}", sees_payloads=True).errors for name in named] == [()] * len(named)
