"""What a project adds to the list and the form of schedules, as the documentation of Django says."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin, messages
from django.contrib.auth.models import Permission, User
from django.db.models import QuerySet
from django.db.models.functions import Length
from django.http import HttpRequest
from django.test import Client
from django.urls import path

from django_graphile_worker.admin import ScheduleAdmin
from django_graphile_worker.models import Schedule
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, rows, text
from tests.support.admin_pages import messages as shown_messages
from tests.support.schedule_forms import form_values
from tests.support.schedule_rows import make_schedule

TASK = "refresh_search_index"


class ShopScheduleAdmin(ScheduleAdmin):
    list_display = (*ScheduleAdmin.list_display, "tenant", "priority")
    list_filter = (*ScheduleAdmin.list_filter, "overlap")
    search_fields = (*ScheduleAdmin.search_fields, "job_key")
    actions: Any = (*ScheduleAdmin.actions, "announce")
    readonly_fields = ("tenant",)
    fieldsets = (*ScheduleAdmin.fieldsets, ("Shop", {"fields": ("tenant",)}))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        return super().get_queryset(request).annotate(length=Length("name"))

    @admin.display(description="Tenant", ordering="job_key")
    def tenant(self, schedule: Any) -> str:
        return f"tenant {schedule.job_key or 'none'} {schedule.length}"

    @admin.action(description="Announce", permissions=["run"])
    def announce(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        names = ", ".join(f"{each.name} {each.length}" for each in queryset.order_by("pk"))
        self.message_user(request, f"Announced {names}", messages.SUCCESS)


shop = admin.AdminSite("shop")
shop.register(Schedule, ShopScheduleAdmin)
urlpatterns = [path("shop/", shop.urls), path("admin/", admin.site.urls)]
URL = "/shop/graphile_worker/schedule/"


@pytest.fixture(autouse=True)
def schedules(settings: Any, db: None) -> None:
    settings.ROOT_URLCONF = __name__
    make_schedule("hourly", TASK, job_key="acme", priority=3)
    make_schedule("daily", TASK, job_key="bolt", priority=1, overlap="skip")
    make_schedule("weekly", TASK, priority=2, overlap="skip")


def names(page: Any) -> list[str]:
    return [row.name for row in rows(page)]


def test_column__is_shown_for_schedules_and_empty_for_items_of_the_crontab(admin_page: Client) -> None:
    page = admin_page.get(URL)
    assert names(page) == ["count_orders", "daily", "hourly", "weekly"]
    assert body(page).count('data-label="Tenant"') == 4
    assert "tenant acme 6" in text(page)
    assert body(page).count("tenant none") == 1


def test_order_of_a_column__has_the_items_of_the_crontab_at_its_end(admin_page: Client) -> None:
    assert names(admin_page.get(URL, {"o": "-7"})) == ["hourly", "weekly", "daily", "count_orders"]
    assert names(admin_page.get(URL, {"o": "7", "source": "database"})) == ["daily", "weekly", "hourly"]


def test_filter__has_schedules_only_and_counts_them(admin_page: Client) -> None:
    page = admin_page.get(URL, {"overlap__exact": "skip"})
    assert names(page) == ["daily", "weekly"]
    assert page.context["cl"].tabs()[0]["count"] == "2"
    # What restricts the list is in sight.
    assert '<details class="gw-filters" open>' in body(page)
    assert '<details class="gw-filters">' in body(admin_page.get(URL, {"state": "active"}))
    assert "Run one after the other" in text(page)


def test_filters_of_a_project_alone__replace_the_tabs(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShopScheduleAdmin, "list_filter", ("overlap",))
    page = admin_page.get(URL, {"overlap__exact": "skip"})
    assert names(page) == ["daily", "weekly"]
    assert page.context["cl"].tabs() == []
    assert "All schedules" not in text(page)
    assert len(names(admin_page.get(URL))) == 4


def test_search_fields__are_those_of_the_subclass(admin_page: Client) -> None:
    assert names(admin_page.get(URL, {"q": "acme"})) == ["hourly"]


def test_action__gets_the_selected_schedules_or_all_that_match(admin_page: Client) -> None:
    ids = [Schedule.objects.get(name=name).pk for name in ("hourly", "weekly")]
    chosen = {"action": "announce", "index": "0", "_selected_action": ids}
    assert shown_messages(admin_page.post(URL, chosen, follow=True)) == ["Announced hourly 6, weekly 6"]
    chosen = {"action": "announce", "index": "0", "select_across": "1"}
    url = f"{URL}?overlap__exact=skip&state=active"
    assert shown_messages(admin_page.post(url, chosen, follow=True)) == ["Announced daily 5, weekly 6"]


def test_action__needs_its_permission(client: Client) -> None:
    user = User.objects.create_user("clerk", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_schedule"))
    client.force_login(user)
    assert "Announce" not in text(client.get(URL))
    user.user_permissions.add(Permission.objects.get(codename="run_schedule"))
    assert "Announce" in text(client.get(URL))


def test_readonly_field__is_shown_in_the_form(admin_page: Client) -> None:
    hourly = Schedule.objects.get(name="hourly")
    url = f"{URL}{hourly.pk}/change/"
    page = admin_page.get(url)
    assert "Shop Tenant: tenant acme" in text(page)
    values = form_values(name="hourly", task=TASK, payload_of=TASK, job_key="zinc", revision=hourly.revision)
    assert admin_page.post(url, values).status_code == 302
    assert Schedule.objects.get(pk=hourly.pk).job_key == "zinc"


def test_fields_that_are_read_only__stay_what_they_are(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShopScheduleAdmin, "readonly_fields", ("tenant", "task", "cron", "overlap"))
    daily = Schedule.objects.get(name="daily")
    url = f"{URL}{daily.pk}/change/"
    page = text(admin_page.get(url))
    assert f"Task: {TASK}" in page
    assert "Cron line: 0 * * * *" in page
    sent = form_values(
        name="daily", task="other", payload_of=TASK, cron="@daily", overlap="allow", time_zone="UTC",
        description="changed", revision=daily.revision,
    )  # fmt: skip
    assert admin_page.post(url, sent).status_code == 302
    found = Schedule.objects.get(pk=daily.pk)
    assert (found.description, found.task, found.cron, found.overlap) == ("changed", TASK, "0 * * * *", "skip")


def test_list__reads_the_figures_of_all_rows_at_once(admin_page: Client, django_assert_max_num_queries: Any) -> None:
    admin_page.get(pages.SCHEDULES)
    with django_assert_max_num_queries(40) as few:
        admin_page.get(pages.SCHEDULES)
    for number in range(20):
        make_schedule(f"tenant {number}", TASK)
    with django_assert_max_num_queries(len(few)):
        admin_page.get(pages.SCHEDULES)
