"""The list of jobs: its order, its pages, its counts, and what a project adds to it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin, messages
from django.contrib.auth.models import Permission, User
from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.test import Client
from django.urls import path

from django_graphile_worker.admin import JobAdmin
from django_graphile_worker.admin.jobs import change_list
from django_graphile_worker.models import Job
from django_graphile_worker.sql.inspection import job_list
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, text
from tests.support.factories import make_failed_job, make_job, minutes_ago

STATES: dict[str, dict[str, Any]] = {
    "ready": {},
    "scheduled": {"run_at": minutes_ago(-600)},
    "retrying": {"run_at": minutes_ago(-600), "attempts": 1, "last_error": "KeyError: x"},
    "running": {"attempts": 1, "locked_by": "worker"},
    "failed": {"attempts": 25, "last_error": "KeyError: x"},
}
# The order of each list, by the columns of the rows.
ORDERS = {
    "all": ("-pk",),
    "ready": ("priority", "run_at", "pk"),
    "scheduled": ("run_at", "pk"),
    "retrying": ("run_at", "pk"),
    "running": ("locked_at", "pk"),
    "failed": ("-updated_at", "-pk"),
}


def make_many() -> None:
    """Create jobs of every state in two tasks, some of them in queues, with several priorities and times."""
    for number in range(12):
        for columns in STATES.values():
            shift = {"run_at": minutes_ago(number - 630 if columns.get("run_at") else number + 1)}
            if "locked_by" in columns:
                shift = {"locked_at": minutes_ago(number)}
            if columns.get("attempts") == 25:
                shift = {"updated_at": minutes_ago(number)}
            queue = {"queue_name": "eu"} if number % 3 == 0 else {}
            make_job(f"task{number % 2}", priority=number % 4 - 1, **{**columns, **shift, **queue})


def listed(client: Client, **query: Any) -> list[int]:
    """Return the jobs of all pages."""
    ids: list[int] = []
    url = pages.JOBS + "?" + "&".join(f"{name}={value}" for name, value in query.items())
    for _ in range(40):
        cl = client.get(url).context["cl"]
        ids += [job.pk for job in cl.result_list]
        if not cl.next_url():
            return ids
        url = pages.JOBS + cl.next_url()
    raise AssertionError("the pages do not end")


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobAdmin, "list_per_page", 5)


@pytest.mark.parametrize("state", ORDERS)
def test_pages__have_all_jobs_in_order(admin_page: Client, state: str) -> None:
    make_many()
    jobs = Job.objects.order_by(*ORDERS[state])
    wanted = list(jobs.values_list("pk", flat=True))
    if state != "all":
        of_state = {job.pk for job in jobs if _state(job) == state}
        wanted = [pk for pk in wanted if pk in of_state]
    assert listed(admin_page, state=state) == wanted


@pytest.mark.parametrize("query", [{"task": "task1"}, {"queue": "eu"}, {"task": "task0", "queue": "eu"}])
@pytest.mark.parametrize("state", ["ready", "scheduled", "retrying", "running", "failed"])
def test_filters__keep_the_order(admin_page: Client, state: str, query: dict[str, str]) -> None:
    make_many()
    fields = {"task": "task__identifier", "queue": "job_queue__queue_name"}
    jobs = Job.objects.filter(**{fields[name]: value for name, value in query.items()}).order_by(*ORDERS[state])
    wanted = [job.pk for job in jobs if _state(job) == state]
    assert wanted
    assert listed(admin_page, state=state, **query) == wanted
    terms = " ".join(f"{name}:{value}" for name, value in query.items())
    assert listed(admin_page, state=state, q=terms) == wanted
    # The same jobs through the ORM, which a further condition makes necessary.
    assert listed(admin_page, state=state, q=f"{terms} priority:-9..9") == wanted


def test_list_of_a_task__is_by_state(admin_page: Client) -> None:
    make_many()
    ids = listed(admin_page, task="task1")
    states = [_state(Job.objects.get(pk=each)) for each in ids]
    assert list(dict.fromkeys(states)) == ["running", "ready", "scheduled", "retrying", "failed"] or states == sorted(
        states, key=["running", "ready", "scheduled", "retrying", "failed"].index
    )
    assert sorted(ids) == sorted(Job.objects.filter(task__identifier="task1").values_list("pk", flat=True))


def _state(job: Job) -> str:
    if job.locked_at is not None:
        return "running"
    if not job.is_available:
        return "failed"
    if job.run_at <= minutes_ago(0):
        return "ready"
    return "retrying" if job.attempts else "scheduled"


def test_counts__end_at_a_limit(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        make_job("send")
    make_failed_job("send")
    assert "All 4 Ready 3 Scheduled 0 Running 0 Retrying 0 Failed 1" in text(admin_page.get(pages.JOBS))
    assert "Select all 4 that match" in text(admin_page.get(pages.JOBS))
    monkeypatch.setattr(change_list, "MAX_COUNTED", 2)
    page = text(admin_page.get(pages.JOBS, {"state": "ready"}))
    assert "Ready 2+" in page
    assert "Select all 2+ that match" in page


def test_list__reads_a_fixed_number_of_rows(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lists that everyone keeps open are read by the fixed statements, and not by the ORM."""
    make_many()
    asked: list[job_list.Criteria] = []
    read = job_list.job_ids

    def noted(cursor: Any, criteria: job_list.Criteria, **options: Any) -> list[int]:
        asked.append(criteria)
        return read(cursor, criteria, **options)

    monkeypatch.setattr(job_list, "job_ids", noted)
    for query in ({}, {"state": "ready"}, {"task": "task1"}, {"q": "queue:eu"}, {"q": "exception:KeyError"}):
        asked.clear()
        assert admin_page.get(pages.JOBS, query).context["cl"].is_plain
        assert len(asked) == 1


def test_order_of_a_column__is_only_offered_with_an_index(admin_page: Client) -> None:
    make_many()
    page = admin_page.get(pages.JOBS)
    assert body(page).count('class="gw-sort"') == 1
    assert listed(admin_page, o="1") == sorted(Job.objects.values_list("pk", flat=True))


@pytest.mark.parametrize("query", [{"p": "0"}, {"p": "-3"}, {"p": "x"}, {"p": "9" * 30}, {"o": "99"}, {"no": "field"}])
def test_odd_parameters__are_answered(admin_page: Client, query: dict[str, str]) -> None:
    make_job("send")
    response = admin_page.get(pages.JOBS, query, follow=True)
    assert response.status_code == 200
    assert len(response.context["cl"].result_list) == 1


class WeightFilter(admin.SimpleListFilter):
    title = "weight"
    parameter_name = "weight"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("heavy", "Heavy")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        return queryset.filter(priority__gt=5) if self.value() == "heavy" else queryset


class ShopJobAdmin(JobAdmin):
    list_display = (*JobAdmin.list_display, "weight")
    list_filter = (*JobAdmin.list_filter, WeightFilter)
    actions: Any = (*JobAdmin.actions, "announce")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        return super().get_queryset(request).annotate(doubled=F("priority") * 2)

    @admin.display(description="Weight")
    def weight(self, job: Any) -> str:
        return f"{job.doubled} kg"

    @admin.action(description="Announce", permissions=["reschedule"])
    def announce(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        names = ", ".join(f"{job.doubled}" for job in queryset.order_by("pk"))
        self.message_user(request, f"Announced {names}", messages.SUCCESS)


shop = admin.AdminSite("shop")
shop.register(Job, ShopJobAdmin)
urlpatterns = [path("shop/", shop.urls), path("admin/", admin.site.urls)]


class TestAProjectsSubclass:
    URL = "/shop/graphile_worker/job/"

    @pytest.fixture(autouse=True)
    def urls(self, settings: Any) -> None:
        settings.ROOT_URLCONF = __name__

    def test_has_its_column_its_filter_and_its_action(self, admin_page: Client) -> None:
        light, heavy, heavier = make_job("send", priority=1), make_job("send", priority=7), make_job("pack", priority=9)
        page = admin_page.get(self.URL)
        assert "14 kg" in text(page)
        assert 'data-label="Weight"' in body(page)
        page = admin_page.get(self.URL, {"weight": "heavy", "state": "ready"})
        assert [job.pk for job in page.context["cl"].result_list] == [heavy, heavier]
        assert "Heavy" in text(page)
        chosen = {"action": "announce", "index": "0", "_selected_action": [light, heavier]}
        assert pages.messages(admin_page.post(self.URL, chosen, follow=True)) == ["Announced 2, 18"]
        chosen = {"action": "announce", "index": "0", "select_across": "1"}
        assert pages.messages(admin_page.post(f"{self.URL}?weight=heavy", chosen, follow=True)) == ["Announced 14, 18"]

    def test_checks_the_permission_of_its_action(self, client: Client, db: None) -> None:

        user = User.objects.create_user("clerk", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename="view_job"))
        client.force_login(user)
        make_job("send")
        assert "Announce" not in text(client.get(self.URL))
