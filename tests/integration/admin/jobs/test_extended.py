"""A project's subclass of JobAdmin: what Django's documentation of ModelAdmin says, beside columns and filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from django.contrib import admin
from django.contrib.admin import SimpleListFilter
from django.contrib.admin.checks import ModelAdminChecks
from django.core.checks import CheckMessage
from django.db.models import QuerySet
from django.http import HttpRequest
from django.test import Client
from django.urls import path

from django_graphile_worker.admin import JobAdmin, register
from django_graphile_worker.exceptions import ReadOnlyModelError
from django_graphile_worker.models import Job
from tests.integration.admin.conftest import MakeClient
from tests.support.admin_pages import ACT, JOBS, act, act_on_all, body, job_url, listed, text
from tests.support.factories import make_failed_job, make_job

Use = Callable[..., None]


@pytest.fixture
def use(settings: Any) -> Use:
    """Return a function that gives the site a subclass of JobAdmin with these attributes."""

    def make(**attributes: Any) -> None:
        site = admin.AdminSite()
        register(site)
        site.unregister(Job)
        site.register(Job, type("ShopJobAdmin", (JobAdmin,), {"__module__": "shop.admin", **attributes}))
        settings.ROOT_URLCONF = (path("admin/", site.urls),)

    return make


def customer(self: Any, job: Job) -> str:
    return (job.key or "").partition(":")[2]


def test_readonly_fields__are_on_the_page_of_a_job(admin_page: Client, use: Use) -> None:
    use(customer=customer, readonly_fields=("customer", "revision", "payload"))
    facts = admin_page.get(job_url(make_job("send", key="order:ada"))).context["facts"]
    # The payload has a place of its own.
    assert [(fact.name, fact.value) for fact in facts[-2:]] == [("Customer", "ada"), ("Revision", "0")]


def test_search_fields__are_searched_for_a_word(admin_page: Client, use: Use) -> None:
    found, _other = make_failed_job("send", error="KeyError: mango"), make_failed_job("send", error="KeyError: fig")
    assert [job.pk for job in listed(admin_page.get(JOBS, {"q": "mango"}))] == []
    use(search_fields=("last_error",))
    assert [job.pk for job in listed(admin_page.get(JOBS, {"q": "mango"}))] == [found]
    use(search_fields=("^last_error",))
    assert [job.pk for job in listed(admin_page.get(JOBS, {"q": "mango"}))] == []


def test_ordering__is_that_of_the_project(admin_page: Client, use: Use) -> None:
    ids = [make_job("send", priority=priority) for priority in (5, 1, 9)]
    use(ordering=("-priority",))
    assert [job.pk for job in listed(admin_page.get(JOBS, {"state": "ready"}))] == [ids[2], ids[0], ids[1]]


def test_payload_as_a_column__hides_secrets_and_needs_the_permission(
    admin_page: Client, client_with: MakeClient, use: Use
) -> None:
    use(list_display=("number", "payload", "last_error"))
    make_job("send", {"password": "s3cret", "fruit": 7}, attempts=25, last_error="KeyError: mango")
    page = body(admin_page.get(JOBS))
    assert "fruit" in page
    assert "s3cret" not in page
    page = body(client_with().get(JOBS))
    assert "column-number" in page
    assert "fruit" not in page
    assert "mango" not in page


def test_a_removed_action__is_gone_from_every_page(admin_page: Client, use: Use) -> None:
    def get_actions(self: Any, request: HttpRequest) -> dict[str, Any]:
        found: dict[str, Any] = super(type(self), self).get_actions(request)
        found.pop("delete", None)
        return found

    use(get_actions=get_actions)
    job_id = make_failed_job("send")
    page = body(admin_page.get(job_url(job_id)))
    assert 'value="retry"' in page
    assert 'value="delete"' not in page
    assert act(admin_page, "delete", job_id, confirmed="1").status_code == 403
    assert act_on_all(admin_page, "delete", state="failed", confirmed="1").status_code == 200
    assert Job.objects.count() == 1


def test_has_delete_permission__is_asked(admin_page: Client, use: Use) -> None:
    use(has_delete_permission=lambda self, request, obj=None: False)
    job_id = make_failed_job("send")
    assert 'value="delete"' not in body(admin_page.get(job_url(job_id)))
    assert 'value="delete"' not in body(admin_page.get(JOBS))
    assert act(admin_page, "delete", job_id).status_code == 403


@pytest.mark.parametrize("page", ["change", "history", "payload", "edit"])
def test_has_view_permission__is_asked_about_a_job(admin_page: Client, use: Use, page: str) -> None:
    hidden, shown = make_failed_job("send"), make_failed_job("send")
    use(has_view_permission=lambda self, request, obj=None: obj is None or obj.pk != hidden)
    assert admin_page.get(f"{JOBS}{hidden}/{page}/").status_code == 403
    assert admin_page.get(f"{JOBS}{shown}/{page}/").status_code == 200


class RichFilter(SimpleListFilter):
    title = "tenant"
    parameter_name = "tenant"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("a", "Tenant A"), ("b", "Tenant B")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        return queryset.filter(key__startswith=self.value() or "")


def test_a_chosen_filter_of_the_project__is_seen_in_the_list_and_in_the_confirmation(
    admin_page: Client, use: Use
) -> None:
    use(list_filter=(*JobAdmin.list_filter, RichFilter))
    make_job("send", key="a:1")
    make_job("send", key="b:1")
    page = admin_page.get(JOBS, {"state": "ready", "tenant": "a"})
    assert page.context["cl"].chips()[0][0] == "tenant: Tenant A"
    assert "tenant" not in page.context["cl"].chips()[0][1]
    assert '<details class="gw-filters" open>' in body(page)
    asked = admin_page.post(f"{JOBS}?state=ready&tenant=a", {"action": "delete", "select_across": "1"}, follow=True)
    assert "Ready tenant: Tenant A" in text(asked)


def test_an_action_of_the_project__is_on_the_page_of_a_job(admin_page: Client, use: Use) -> None:
    seen: list[int] = []

    @admin.action(description="Announce")
    def announce(self: Any, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        seen.extend(queryset.values_list("pk", flat=True))

    use(announce=announce, actions=(*JobAdmin.actions, "announce"))
    job_id = make_job("send")
    assert ">Announce</button>" in body(admin_page.get(job_url(job_id)))
    answer = admin_page.post(ACT, {"action": "announce", "id": job_id, "back": job_url(job_id)})
    assert (answer.status_code, answer["Location"]) == (302, job_url(job_id))
    assert seen == [job_id]


def test_an_error_of_the_project_in_an_action__is_raised(admin_page: Client, use: Use) -> None:
    @admin.action
    def wrong(self: Any, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        queryset.update(priority=1)

    use(wrong=wrong, actions=("wrong",))
    with pytest.raises(ReadOnlyModelError):
        admin_page.post(JOBS, {"action": "wrong", "_selected_action": make_job("send")})


def test_media_of_the_project__is_on_the_list_and_on_the_page_of_a_job(admin_page: Client, use: Use) -> None:
    class Media:
        css: ClassVar[dict[str, tuple[str, ...]]] = {"all": ("shop/jobs.css",)}
        js = ("shop/jobs.js",)

    use(Media=Media)
    for url in (JOBS, job_url(make_job("send"))):
        page = body(admin_page.get(url))
        assert "shop/jobs.css" in page
        assert "shop/jobs.js" in page
        assert "actions.js" not in page


def messages(**attributes: Any) -> list[CheckMessage]:
    page = type("ShopJobAdmin", (JobAdmin,), {"__module__": "shop.admin", **attributes})
    return list(page(Job, admin.site).check())


def test_options_without_effect__are_told_by_a_check() -> None:
    assert issubclass(JobAdmin.checks_class, ModelAdminChecks)
    assert messages(list_per_page=20, ordering=("-pk",)) == []
    found = messages(date_hierarchy="created_at", fields=("key",))
    assert [message.msg for message in found] == [
        "ShopJobAdmin.date_hierarchy has no effect.",
        "ShopJobAdmin.fields has no effect.",
    ]
    assert {message.id for message in found} == {"graphile_worker.W014"}
