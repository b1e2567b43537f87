"""``{% job_progress job %}``."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.template import Context, Template

from django_graphile_worker import add_job
from tests.support.factories import make_failed_job

pytestmark = pytest.mark.django_db
TAG = Template("{% load graphile_worker %}{% job_progress job finished_url=next %}")


def render(**context: Any) -> str:
    return TAG.render(Context({"next": "", **context}))


def test_running_job__has_a_bar_that_the_script_of_the_package_moves(client: Any) -> None:
    text = render(job=add_job("task"), next="/done/?a=1&b=2")
    address = re.findall(r'data-gw-progress="([^"]+)"', text)
    assert client.get(address[0]).json()["status"] == "waiting"
    assert '<progress class="gw-progress-bar" max="100" aria-label="Progress"></progress>' in text
    assert 'data-finished-url="/done/?a=1&amp;b=2"' in text
    assert re.findall(r"<script[^>]*>", text) == ['<script src="/static/graphile_worker/progress.js" defer>']
    frame = re.findall(r'<noscript><iframe src="([^"]+)"', text)
    assert client.get(frame[0]).status_code == 200, "moves also without any script"


def test_ended_job__has_a_bar_that_stands_still() -> None:
    text = render(job=make_failed_job(), next="/done/")
    assert 'data-status="failed"' in text
    assert "<script" not in text
    assert "/done/" not in text, "the page would load itself for ever"


def test_nonce__is_that_of_the_page() -> None:
    assert 'defer nonce="abc"></script>' in render(job=add_job("task"), csp_nonce="abc")


def test_missing_addresses__are_explained(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.integration.admin.own_site"
    with pytest.raises(ImproperlyConfigured, match=r'Add path\("jobs/", include\("django_graphile_worker.urls"\)\)'):
        render(job=add_job("task"))
