"""Permissions, redaction, and escaping: no text of a job becomes markup."""

from __future__ import annotations

import html.parser
import json
import re
import time
from typing import Any

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from django_graphile_worker.admin.search_terms import SearchTerm
from django_graphile_worker.models import Job
from django_graphile_worker.redaction import redact_text
from tests.integration.admin.conftest import VIEWS, MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, job_url, make_worker, record_statistics, text
from tests.support.factories import make_failed_job, make_job, make_queue
from tests.support.operating import execute
from tests.support.results import store_result

PAGE_OF = dict(
    zip(
        VIEWS,
        (
            pages.OVERVIEW,
            pages.JOBS,
            pages.QUEUES,
            pages.SCHEDULES,
            pages.WORKERS,
            pages.ERRORS,
            pages.HISTORY,
            pages.PAUSES,
            pages.LIMITS,
        ),
        strict=True,
    )
)
# The permission, the address and the fields of every view that changes something.
CHANGES: dict[str, tuple[str, str, dict[str, str]]] = {
    "run now": ("reschedule_job", pages.ACT, {"action": "run_now"}),
    "retry": ("reschedule_job", pages.ACT, {"action": "retry"}),
    "reschedule": ("reschedule_job", pages.ACT, {"action": "reschedule", "confirmed": "1", "priority": "9"}),
    "fail": ("complete_job", pages.ACT, {"action": "fail", "confirmed": "1"}),
    "delete": ("complete_job", pages.ACT, {"action": "delete", "confirmed": "1"}),
    "add": ("add_job", pages.ADD, {"task": "send_receipt", "payload": "{}"}),
    "unlock worker": ("unlock_worker", pages.WORKERS + "unlock/", {"worker": "node", "confirmed": "1"}),
    "unlock queue": ("unlock_worker", pages.QUEUES + "unlock/", {"worker": "node", "confirmed": "1"}),
    "pause": ("pause_work", pages.PAUSES, {"kind": "flag", "name": "bulk"}),
    "run cron": ("run_recurringtask", pages.SCHEDULES, {"row": "run_now item count_orders"}),
}
PERMISSIONS = sorted({permission for permission, _, _ in CHANGES.values()})


def everything() -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(f'select * from "{settings.GRAPHILE_WORKER["SCHEMA"]}".jobs order by id')
        jobs = cursor.fetchall()
    return [jobs, LogEntry.objects.count()]


@pytest.fixture
def job_id(db: None) -> int:
    make_job("held", locked_by="node", queue_name="eu")
    make_queue("eu", locked_by="node")
    return make_job("send", run_at="2090-01-01", attempts=3, last_error="It broke.")


class TestPermissions:
    @pytest.mark.parametrize("view", VIEWS)
    def test_each_page_has_its_own(self, client_with: MakeClient, view: str) -> None:
        client = client_with(views=(view,))
        for codename, url in PAGE_OF.items():
            assert client.get(url).status_code == (200 if codename == view else 403)
        navigation = client.get(PAGE_OF[view]).context["navigation"]
        assert [is_current for _, _, is_current in navigation] == [True]

    @pytest.mark.parametrize("permission", PERMISSIONS)
    @pytest.mark.parametrize("change", CHANGES)
    def test_each_change_needs_its_own(
        self, client_with: MakeClient, job_id: int, change: str, permission: str
    ) -> None:
        needed, url, fields = CHANGES[change]
        before = everything()
        client = client_with(permission)
        response = client.post(url, {**fields, "id": job_id})
        if permission == needed:
            assert response.status_code == 302
            pages.confirm(client, client.get(response.headers["Location"]), priority="9")
            assert everything() != before
        else:
            assert response.status_code == 403
            assert everything() == before

    @pytest.mark.parametrize("change", CHANGES)
    def test_all_that_match_needs_the_same(self, client_with: MakeClient, job_id: int, change: str) -> None:
        _, url, fields = CHANGES[change]
        before = everything()
        assert client_with().post(url, {**fields, "all": "1"}).status_code == 403
        assert everything() == before

    def test_actions_need_the_permission_to_view_jobs(self, client_with: MakeClient, job_id: int) -> None:
        client = client_with("complete_job", "reschedule_job", views=())
        assert client.post(pages.ACT, {"action": "retry", "id": job_id}).status_code == 403

    def test_a_viewer_sees_no_buttons(self, client_with: MakeClient, job_id: int) -> None:
        make_worker("node", silent=900)
        client = client_with()
        for url in [*PAGE_OF.values(), job_url(job_id)]:
            content = body(client.get(url)).split('id="content-main"')[1]
            assert "csrfmiddlewaretoken" not in content
            assert not re.search(r"<button(?![^>]*>(Search|Add to search|Apply|Show))", content)
            assert 'name="action"' not in content
            assert 'name="id"' not in content
        assert client.get(pages.ADD).status_code == 403

    def test_users_without_staff_status_are_redirected_to_the_login(self, job_id: int) -> None:
        client = Client()
        client.force_login(User.objects.create_user("customer"))
        for url in [*PAGE_OF.values(), job_url(job_id), pages.ACT]:
            assert "/login/" in client.get(url)["Location"]

    @pytest.mark.parametrize("change", CHANGES)
    def test_changes_need_post_and_a_token(self, admin_page: Client, job_id: int, change: str) -> None:
        _, url, fields = CHANGES[change]
        before = everything()
        admin_page.get(url, {**fields, "id": str(job_id)})
        strict = Client(enforce_csrf_checks=True)
        strict.force_login(User.objects.get(username="root"))
        assert strict.post(url, {**fields, "id": job_id}).status_code == 403
        assert everything() == before
        if url == pages.ACT:
            redirected = admin_page.get(url, follow=True)
            assert redirected.request["PATH_INFO"] == pages.JOBS
            assert "Nothing was changed" in pages.messages(redirected)[-1]
        elif url not in {pages.ADD, pages.PAUSES, pages.SCHEDULES}:
            assert admin_page.get(url).status_code == 405

    @pytest.mark.parametrize("model", ["overview", "jobqueue", "worker", "errorgroup", "limitkey"])
    @pytest.mark.parametrize("view", ["add/", "1/change/", "1/delete/", "1/history/"])
    def test_djangos_own_forms_are_closed(self, admin_page: Client, model: str, view: str) -> None:
        url = f"{pages.BASE}{model}/{view}"
        assert admin_page.get(url).status_code == 403
        assert admin_page.post(url, {}).status_code == 403

    def test_a_job_has_no_delete_form(self, admin_page: Client, job_id: int) -> None:
        assert admin_page.post(f"{pages.JOBS}{job_id}/delete/", {"post": "yes"}).status_code == 403
        assert Job.objects.filter(pk=job_id).exists()


SECRET = "hunter2-s3cr3t"
SECRETS = {
    "password": SECRET,
    "nested": [{"api_key": SECRET, "fine": "visible"}],
    "auth": {"deep": {"er": SECRET}},
}


class TestRedaction:
    @pytest.fixture
    def secret_job(self, db: None) -> int:
        error = f"ValueError: token={SECRET}\n\npostgres://user:{SECRET}@host/db\n{{'password': '{SECRET}'}}"
        return make_failed_job("send_receipt", payload=SECRETS, error=error)

    def test_secrets_are_hidden_everywhere(self, client_with: MakeClient, secret_job: int) -> None:
        client = client_with("add_job", "complete_job", "reschedule_job")
        again = f"{pages.ADD}?from={secret_job}"
        for url in [*PAGE_OF.values(), job_url(secret_job), again]:
            assert SECRET not in body(client.get(url)), url
        asked = client.post(pages.ACT, {"action": "delete", "id": secret_job}, follow=True)
        assert SECRET not in body(asked)
        detail = text(client.get(job_url(secret_job)))
        assert "You do not have permission to see payloads." in detail
        assert "ValueError: token=••••••" in detail
        waiting = make_job("send_receipt")
        pages.act(client, "fail", waiting, confirmed="1", reason=f"token: {SECRET}")
        assert SECRET not in LogEntry.objects.get().change_message

    def test_payloads_are_shown_with_the_permission(self, client_with: MakeClient, secret_job: int) -> None:
        assert SECRET in body(client_with("view_payload").get(job_url(secret_job)))

    def test_the_whole_payload_is_a_file_with_the_permission(self, client_with: MakeClient) -> None:
        payload = {"text": "<script>alert(1)</script>" + "x" * 300_000, "password": SECRET, "big": 2**64}
        job_id = make_job("send", payload)
        url = f"{pages.JOBS}{job_id}/payload/"
        client = client_with("view_payload")
        assert url in body(client.get(job_url(job_id)))
        response = client.get(url)
        assert json.loads(response.content) == payload
        assert response["Content-Disposition"] == f'attachment; filename="job-{job_id}.json"'
        assert response["Content-Type"] == "application/json; charset=utf-8"
        assert response["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in response["Content-Security-Policy"]
        hides = client_with("add_job", "complete_job", "reschedule_job")
        assert hides.get(url).status_code == 403
        assert url not in body(hides.get(job_url(job_id)))
        assert client_with("view_payload", views=()).get(url).status_code == 403
        for odd in ("0", "x", "9" * 30):
            assert client.get(f"{pages.JOBS}{odd}/payload/").status_code == 404

    def test_a_hidden_payload_is_copied_unseen(self, client_with: MakeClient, secret_job: int) -> None:
        client = client_with("add_job")
        client.post(f"{pages.ADD}?from={secret_job}", {"task": "send_receipt"})
        assert Job.objects.exclude(pk=secret_job).get().payload == SECRETS

    def test_a_hidden_payload_is_not_copied_into_another_task(self, client_with: MakeClient, secret_job: int) -> None:
        """The other task could show it, in its error for example."""
        other = make_job("other")
        address = f"{pages.ADD}?from={secret_job}&task=other"
        client = client_with("add_job")
        assert "disabled" in body(client.get(address))
        client.post(address, {"task": "other"})
        copy = Job.objects.exclude(pk__in=[secret_job, other]).get()
        assert (copy.task.identifier, copy.payload) == ("send_receipt", SECRETS)

    def test_a_payload_that_is_seen_is_copied_into_any_task(self, client_with: MakeClient, secret_job: int) -> None:
        other = make_job("other")
        given = {"task": "other", "payload": "{}"}
        client_with("add_job", "view_payload").post(f"{pages.ADD}?from={secret_job}", given)
        assert Job.objects.exclude(pk__in=[secret_job, other]).get().task.identifier == "other"

    def test_the_search_does_not_reveal_what_is_hidden(self, client_with: MakeClient, secret_job: int) -> None:
        query = {"q": f"payload.password:{SECRET}"}
        guessed = client_with().get(pages.JOBS, query)
        assert pages.search_errors(guessed)
        assert len(pages.listed(client_with("view_payload").get(pages.JOBS, query))) == 1
        for hidden in ("payload.nested.0.fine:visible", "payload:visible", "-payload:visible", "limit:account:1"):
            guessed = client_with().get(pages.JOBS, {"q": hidden})
            assert "You may not see payloads." in text(guessed)
            assert pages.listed(guessed) == []

    def test_the_text_of_errors_cannot_be_guessed(self, client_with: MakeClient, secret_job: int) -> None:
        """Searching for one letter more at a time would reveal the whole secret."""
        hides, sees = client_with("reschedule_job"), client_with("view_payload")
        for query in (f"error:{SECRET[:3]}", f"-error:{SECRET[:3]}x", f'error:"token={SECRET[:3]}"'):
            assert pages.listed(sees.get(pages.JOBS, {"q": query}))
            page = hides.get(pages.JOBS, {"q": query})
            assert "You may not see the texts of errors." in text(page)
            assert pages.listed(page) == []
            response = hides.post(pages.ACT, {"action": "retry", "all": "1", "q": query}, follow=True)
            assert "retried" not in " ".join(pages.messages(response))
        assert not Job.objects.get(pk=secret_job).is_available

    def test_payloads_cannot_be_guessed_as_a_whole(self, client_with: MakeClient) -> None:
        make_job("send", {"card": {"pin_token": "1234"}, "user": 7})
        hides, sees = client_with(), client_with("view_payload")
        whole = str(SearchTerm("payload.card", '{"pin_token": "1234"}'))
        for query in (whole, "payload.user:7", "payload:1234"):
            assert len(pages.listed(sees.get(pages.JOBS, {"q": query}))) == 1
            assert "You may not see payloads." in text(hides.get(pages.JOBS, {"q": query}))

    def test_no_page_shows_a_payload_without_the_permission(self, client_with: MakeClient, worker_schema: str) -> None:
        """Not only secrets: a payload has names, addresses and orders of customers."""
        failed = make_failed_job("send", payload={"email": "ada@example.com"}, error="KeyError: 'x'")
        running = make_job("send", {"email": "ada@example.com"}, locked_by="w1")
        with connection.cursor() as cursor:
            store_result(cursor, 4711, worker_schema, task="send", value={"to": "ada@example.com"})
        hides, sees = client_with("add_job", "complete_job", "reschedule_job"), client_with("view_payload")
        addresses = [*PAGE_OF.values(), *map(job_url, (failed, running, 4711)), f"{pages.ADD}?from={failed}"]
        for url in addresses:
            assert "ada@example.com" not in body(hides.get(url)), url
        assert "ada@example.com" not in body(hides.post(pages.ACT, {"action": "delete", "id": failed}))
        for job_id in (failed, running, 4711):
            assert "ada@example.com" in text(sees.get(job_url(job_id)))

    def test_names_of_errors_are_hidden_where_they_hold_secrets(self, client_with: MakeClient) -> None:
        make_failed_job("send", error=f"password={SECRET} was refused: no")
        make_failed_job("send", error="KeyError: 'x'")
        name = f"password={SECRET} was refused".replace("2", "#").replace("3", "#")
        page = client_with("reschedule_job").get(pages.ERRORS)
        assert "hunter" not in body(page)
        assert {group["name"] for group in page.context["groups"]} == {"password=•••••• was refused", "KeyError"}
        assert "hunter" in body(client_with("view_payload").get(pages.ERRORS))
        for query in (f'exception:"{name}"', f'-exception:"{name}"'):
            assert pages.search_errors(client_with().get(pages.JOBS, {"q": query}))
        assert len(pages.listed(client_with("view_payload").get(pages.JOBS, {"q": f'exception:"{name}"'}))) == 1
        # The last part of a name is enough, but not of a hidden name.
        for guess in ("refused", "hunter", "was refused"):
            assert pages.listed(client_with().get(pages.JOBS, {"q": f'exception:"{guess}"'})) == []

    def test_undecodable_payloads_are_hidden_whole(self, client_with: MakeClient) -> None:
        job_id = make_job("send")
        raw = '{"password": "' + SECRET + '", "n": ' + "9" * 6000 + "}"
        execute("update {schema}._private_jobs set payload = %s::json where id = %s", [raw, job_id])
        assert SECRET not in body(client_with().get(job_url(job_id)))
        assert SECRET in body(client_with("view_payload").get(job_url(job_id)))

    def test_patterns_of_the_setting_apply(self, client_with: MakeClient, secret_job: int, settings: Any) -> None:
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "REDACT": ["^fine$"]}
        shown = text(client_with("view_payload").get(pages.JOBS))
        assert "visible" not in shown
        assert SECRET in shown


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7|add:7 }}{% load x %}",
    "javascript:alert(1)",
    "</title><svg onload=alert(1)>",
    "\u202egnp.exe",
    "%(x)s %s {0} {x}",
]


ADDRESSES = {"href", "src", "action", "formaction"}
SCRIPT = re.compile(r"\s*(javascript|data|vbscript):", re.IGNORECASE)


class Scanner(html.parser.HTMLParser):
    """Finds what a strict content security policy forbids, and elements that no template contains."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        names = {name: value or "" for name, value in attributes}
        self.found += [f"{tag} {name}" for name in names if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and "src" not in names) or tag in ("img", "iframe", "object"):
            self.found.append(tag)
        for name in ADDRESSES & names.keys():
            if SCRIPT.match(names[name]):
                self.found.append(f"{tag} {name}={names[name]}")

    def updatepos(self, i: int, j: int) -> int:
        """Count no lines: nobody asks for positions, and the tests scan hundreds of pages."""
        return j


def forbidden_markup(response: Any) -> list[str]:
    scanner = Scanner()
    scanner.feed(body(response))
    return scanner.found


@pytest.mark.parametrize("text_", HOSTILE)
def test_no_text_becomes_markup(admin_page: Client, worker_schema: str, settings: Any, text_: str) -> None:
    name = text_[:120]
    payload = {text_: [text_, {text_: text_}]}
    failed = make_failed_job(
        name, payload=payload, error=f'{text_}\n  File "{text_}", line 1, in {text_}\n    {text_}', queue_name=name
    )
    waiting = make_job(name, payload, key=text_, flags={text_: True}, queue_name=name)
    running = make_job(name, queue_name=name, locked_by=text_)
    make_queue(name, locked_by=text_)
    make_worker(
        text_ + "w",
        silent=900,
        host=text_,
        version=text_,
        tasks=[name],
        running=[{"job_id": text_, "task": text_, "started_at": text_}, {"job_id": 1, "task": text_}],
    )
    execute("insert into {schema}._private_known_crontabs values (%s, now(), now())", [text_])
    record_statistics(worker_schema, name, succeeded=3, failed=1)
    urls = [*pages.ALL_PAGES, *(job_url(each) for each in (failed, waiting, running))]
    responses = [admin_page.get(url) for url in urls]
    responses += [
        admin_page.get(pages.JOBS, {"q": text_, "state": text_, "task": text_, "queue": text_, "database": text_}),
        admin_page.get(pages.JOBS, {text_: text_}, follow=True),
        admin_page.get(pages.JOBS, {"q": f'task:"{name}"'.replace("\\", "")}),
        admin_page.get(pages.OVERVIEW, {"task": name, "span": text_}),
        admin_page.get(pages.QUEUES, {"q": text_, "after": text_}),
        admin_page.get(pages.ADD, {"from": waiting}),
        admin_page.post(pages.ADD, {"task": text_, "payload": text_, "priority": text_, "flags": text_}),
        admin_page.post(
            pages.ACT, {"action": "fail", "id": [failed, waiting], "q": text_, "state": text_}, follow=True
        ),
        admin_page.post(pages.ACT, {"action": "retry", "all": "1", "q": f"error:{json.dumps(text_)}"}, follow=True),
        admin_page.post(pages.WORKERS + "unlock/", {"worker": text_}),
        pages.act(admin_page, "fail", waiting, confirmed="1", reason=text_),
        admin_page.post(pages.WORKERS + "unlock/", {"worker": text_, "confirmed": "1"}, follow=True),
        admin_page.get(job_url(failed)),
        admin_page.get("/admin/"),
    ]
    for response in responses:
        assert response.status_code in (200, 404), response.request["PATH_INFO"]
        assert forbidden_markup(response) == [], response.request["PATH_INFO"]
        assert "14{%" not in body(response)


ODD_VALUES = [
    "\x00",
    "9" * 400,
    "-1",
    "~~",
    "0~x~1",
    "0~infinity~1",
    "id:99999999999999999999",
    "priority:99999",
    "id:" + "1," * 3000,
    "created:99999999y",
    "due:2026-13-45",
    "created:0001-01-01",
    "payload.:x",
    "payload.a..b:x",
    'task:"',
    "\u0663",
    "(" * 2000,
    "\U0001f986",
]


@pytest.mark.parametrize(
    ("url", "parameter"),
    [
        (pages.JOBS, name)
        for name in ("q", "state", "task", "queue", "continued", "database", "o", "p", "_facets", "id__in")
    ]
    + [(pages.QUEUES, name) for name in ("q", "after", "held")]
    + [(pages.OVERVIEW, name) for name in ("span", "task")],
)
def test_no_parameter_breaks_a_page(admin_page: Client, url: str, parameter: str) -> None:
    make_job("send")
    for value in ODD_VALUES:
        response = admin_page.get(url, {parameter: value}, follow=True)
        assert response.status_code == 200, value
        assert forbidden_markup(response) == []


def test_redaction_reads_a_long_text_once() -> None:
    # The time of this process, so that other processes on the machine do not count.
    began = time.process_time()
    for text_ in ("a" * 200_000, "a=" * 100_000, "://" * 60_000, '"' * 200_000, "token" * 40_000):
        redact_text(text_)
    assert time.process_time() - began < 5


def test_page__asks_about_few_of_the_words_that_nothing_has(admin_client: Client) -> None:
    """Each is compared with all names, of which anybody who adds jobs can make thousands."""
    make_job("word")
    page = admin_client.get(pages.JOBS, {"q": " ".join(f"-task:word{number}" for number in range(15))})
    assert pages.text(page).count("Did you mean word?") == 5
