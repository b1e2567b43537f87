"""The search of the job list as a user meets it: questions, jobs in other states, completion, and attacks."""

from __future__ import annotations

import pytest
from django.test import Client

from django_graphile_worker.sql.inspection import known_names
from tests.support import admin_pages as pages
from tests.support.factories import make_failed_job, make_job, make_queue, minutes_ago

COMPLETE = pages.JOBS + "complete/"


def found(client: Client, query: str, state: str = "") -> list[int]:
    return [row.id for row in client.get(pages.JOBS, {"q": query, "state": state}).context["rows"]]


def completed(client: Client, typed: str) -> dict[str, str]:
    response = client.get(COMPLETE, {"typed": typed})
    assert response.status_code == 200
    return {each["text"]: each["remark"] for each in response.json()["completions"]}


def test_id__is_found_whichever_tab_is_open(admin_page: Client) -> None:
    job_id = make_failed_job("send")
    for query in (f"#{job_id}", str(job_id), f"id:#{job_id}"):
        assert found(admin_page, query) == [job_id]
        page = admin_page.get(pages.JOBS, {"q": query, "state": "ready"})
        assert f"Job #{job_id} is in the state" in pages.text(page)
        assert page.context["elsewhere"][0]["url"] == f"{pages.JOBS}?q=id%3A{job_id}"
    assert "No jobs match." in pages.text(admin_page.get(pages.JOBS, {"q": "#999999"}))


def test_empty_tab__offers_all_states(admin_page: Client) -> None:
    make_failed_job("send")
    page = admin_page.get(pages.JOBS, {"q": "task:send", "state": "ready"})
    assert page.context["all_states_url"] == f"{pages.JOBS}?q=task%3Asend"


def test_state__in_the_search_opens_its_tab(admin_page: Client) -> None:
    failed, ready = make_failed_job("send"), make_job("send")
    page = admin_page.get(pages.JOBS, {"q": "state:failed task:send"})
    assert [row.id for row in page.context["rows"]] == [failed]
    tabs = {tab["state"]: tab for tab in page.context["tabs"]}
    assert tabs["failed"]["is_current"]
    # A tab shows its own state.
    assert [row.id for row in admin_page.get(tabs["ready"]["url"]).context["rows"]] == [ready]
    pages.act_on_all(admin_page, "fail", "state:ready task:send", confirmed="1")
    assert found(admin_page, "state:ready") == []


def test_word_that_is_part_of_no_name__gets_a_question(admin_page: Client) -> None:
    job_id = make_failed_job("charge_card", error="KeyError: the provider", payload={"note": "provider"})
    make_queue("warehouse")
    page = admin_page.get(pages.JOBS, {"q": "provider OR task:x"})
    question, _ = page.context["questions"]
    offers = dict(question["offers"])
    assert offers["Search error texts"] == f"{pages.JOBS}?q=error%3Aprovider+OR+task%3Ax"
    for url in (offers["Search error texts"], offers["Search payloads"]):
        assert [row.id for row in admin_page.get(url).context["rows"]] == [job_id]
    for word, name in (("chrage", "task:charge_card"), ("waerhouse", "queue:warehouse")):
        (question,) = admin_page.get(pages.JOBS, {"q": word}).context["questions"]
        assert name in dict(question["close"])


def test_name_that_no_task_or_queue_has__gets_close_names(admin_page: Client) -> None:
    make_job("charge_card", queue_name="warehouse", run_at=minutes_ago(-9))
    page = admin_page.get(pages.JOBS, {"q": "task:chrage_card priority:0", "state": "scheduled"})
    (question,) = page.context["questions"]
    assert "No task is called “chrage_card”. Did you mean: task:charge_card" in pages.text(page)
    assert len(admin_page.get(dict(question["close"])["task:charge_card"]).context["rows"]) == 1
    page = admin_page.get(pages.JOBS, {"q": "queue:waerhouse"})
    assert "No queue is called “waerhouse”. Did you mean: queue:warehouse" in pages.text(page)
    # A name that exists, or that has wildcards, is no mistake.
    for query in ("task:charge_card priority:9", "queue:warehouse priority:9", "task:chrage*"):
        page = admin_page.get(pages.JOBS, {"q": query})
        assert page.context["questions"] == []
        assert "No jobs match." in pages.text(page)


def test_negated_unknown_word__blocks_actions_on_all(admin_page: Client) -> None:
    """A mistyped exclusion excludes nothing: an action would change jobs that the user wants to spare."""
    make_job("send")
    response = pages.act_on_all(admin_page, "delete", "task:send -urgnt", confirmed="1")
    assert "No jobs were changed" in " ".join(pages.messages(response))
    assert len(found(admin_page, "task:send")) == 1


def test_terms__can_be_removed_one_by_one(admin_page: Client) -> None:
    page = admin_page.get(pages.JOBS, {"q": "task:a (flag:x OR flag:y) -queue:z"})
    assert [(term["text"], term["url"].partition("?q=")[2]) for term in page.context["terms"]] == [
        ("task:a", "%28flag%3Ax+OR+flag%3Ay%29+-queue%3Az"),
        ("flag:x OR flag:y", "task%3Aa+-queue%3Az"),
        ("-queue:z", "task%3Aa+%28flag%3Ax+OR+flag%3Ay%29"),
    ]
    page = admin_page.get(pages.JOBS, {"q": "task:a OR task:b OR priority:high"})
    assert [term["url"].partition("?q=")[2] for term in page.context["terms"]] == [
        "task%3Ab+OR+priority%3Ahigh",
        "task%3Aa+OR+priority%3Ahigh",
    ]


def test_completion__knows_names_and_counts_jobs(admin_page: Client) -> None:
    for _ in range(3):
        make_job("charge_card", queue_name="eu-1", key=f"order-{_}")
    make_job("shop.send@emails", flags={"slow": True})
    make_failed_job("charge_card", error="shop.NoPrinter: x")
    make_job("charge_card", locked_by="web-1")
    assert completed(admin_page, "task:char") == {"task:charge_card": "5 jobs"}
    assert completed(admin_page, "CHARGE") == {"task:charge_card": "5 jobs"}
    assert completed(admin_page, "queue:") == {"queue:eu-1": "3 jobs"}
    assert completed(admin_page, "label:em") == {"label:emails": "1 job"}
    assert completed(admin_page, "flag:s") == {"flag:slow": "1 job"}
    assert completed(admin_page, "exception:print") == {"exception:shop.NoPrinter": "1 job"}
    assert completed(admin_page, "worker:web") == {"worker:web-1": "1 job"}
    assert completed(admin_page, "state:f") == {"state:failed": "1 job"}
    assert completed(admin_page, "key:order-") == {f"key:order-{number}": "" for number in range(3)}
    assert "attempts:" in completed(admin_page, "at")
    assert len(completed(admin_page, "")) > 10
    assert completed(admin_page, "payload:x") == {}


HOSTILE_BEGINNINGS = [
    "task:%", "task:_", "task:'; drop table x; --", "key:\\", "\x00", "_task:", "x" * 5000, "complete:", "_count:",
    'task:"x', "exception:%s", "queue:%(x)s",
]  # fmt: skip


@pytest.mark.parametrize("typed", HOSTILE_BEGINNINGS)
def test_completion__survives_hostile_text(admin_page: Client, typed: str) -> None:
    make_job("send")
    assert not {name for name in completed(admin_page, typed) if name == "task:send"}


HOSTILE = [
    "task:'; drop table jobs; --", "task:%", "queue:_%", "key:\\", "task:a\\*", "payload:%s", "payload:%(x)s",
    "error:\\",
    "task:*%*_*", "\x00task:send", "task:" + "a*" * 6, "(" * 1000 + "a", "-" * 1000 + "a", "a OR " * 300, "state:'",
    "payload.a{1}:x", 'payload:"\\u0000"', "attempts:>99999999", "worker:%*", "flag:'*", "limit:'*", "exception:['*",
]  # fmt: skip


@pytest.mark.parametrize("query", HOSTILE)
def test_hostile_search__is_answered_and_finds_nothing_by_accident(admin_page: Client, query: str) -> None:
    make_job("send", {"a": "b"})
    page = admin_page.get(pages.JOBS, {"q": query})
    assert page.status_code == 200
    if not page.context["mistakes"] and "send" not in query and not query.startswith("-"):
        assert page.context["rows"] == []


def test_wildcards__match_only_what_the_star_stands_for(admin_page: Client) -> None:
    ids = [make_job(name, queue_name=name, key=name) for name in ("a_b", "axb", "a%b", "a\\b", "a[x]b", "a?b")]
    for kind in ("task", "queue", "key"):
        assert len(found(admin_page, f"{kind}:a*b")) == 6
        for pattern, number in (("a_*", 0), ("a%*", 2), ("a[x]*", 4), ("a?*", 5)):
            assert found(admin_page, f"{kind}:{pattern}") == [ids[number]], (kind, pattern)
        assert found(admin_page, f'{kind}:"a\\\\*"') == [ids[3]]


def test_names_beyond_a_limit__are_found_by_reading_jobs(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [make_job("send", queue_name=f"eu-{number}", key=f"order-{number}") for number in range(3)]
    make_failed_job("send", queue_name="us", error="shop.NoPrinter: x")
    for name in ("MOST_QUEUES", "MAX_KEYS", "MAX_TASKS", "MAX_EXAMINED"):
        monkeypatch.setattr(known_names, name, 1)
    for query in ("queue:eu-*", "key:order-*"):
        assert sorted(found(admin_page, query)) == wanted
        assert sorted(found(admin_page, query, "ready")) == wanted


def test_completion__needs_the_permission(client: Client, admin_page: Client, django_user_model: type) -> None:
    user = django_user_model.objects.create_user("staff", password="x", is_staff=True)  # type: ignore[attr-defined]
    client.force_login(user)
    assert client.get(COMPLETE, {"typed": "task:"}).status_code == 403


def test_page__loads_the_script_and_lists_all_conditions(admin_page: Client) -> None:
    make_job("send", run_at=minutes_ago(1))
    page = admin_page.get(pages.JOBS)
    body = pages.body(page)
    assert "graphile_worker/search.js" in body
    assert f'data-complete-url="{COMPLETE}"' in body
    for condition in ("#95", "task:send_*", "attempts:&gt;3", "payload.user.id:5", "-queue:eu", "task:a OR task:b"):
        assert f"<code>{condition}</code>" in body
