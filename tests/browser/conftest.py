"""A real browser and a real site with a strict content security policy, and what the tests do to its pages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.test import Client, override_settings
from pytest_django.live_server_helper import LiveServer

from django_graphile_worker.registry import tasks
from tests.browser import showcase
from tests.support import prerequisites

OpenPage = Callable[..., Any]
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
# No inline code, and nothing from other sites.
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"  # noqa: E501
# The pages of a project may show pages of their own site in frames.
POLICY_WITH_FRAMES = POLICY.replace("frame-ancestors 'none'", "frame-ancestors 'self'; frame-src 'self'")
# Without the first two, each window has two pages for its address bar, which cost more than the page of a test.
# Chromium reads only the last list of its command line, so the others are those that Playwright disables.
DISABLED_FEATURES = [
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "AimEnabled",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
]
ARGUMENTS = [
    f"--disable-features={','.join(DISABLED_FEATURES)}",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class StrictPolicy:
    """A middleware that sets a content security policy with only what the pages of the admin need."""

    def __init__(self, get_response: Callable[..., Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        response = self.get_response(request)
        is_admin = request.path.startswith("/admin/")
        response["Content-Security-Policy"] = POLICY if is_admin else POLICY_WITH_FRAMES
        return response


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/browser" in str(item.path):
            item.add_marker(pytest.mark.browser)


# Package scope: one browser for all tests of this folder, each of which opens a context of its own. The scope ends with
# the folder, because an event loop runs in this thread while Playwright is open, which other tests must not see.
@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Launch Chromium, or skip the test with the reason."""
    playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = prerequisites.find_browser()
    if executable is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium-headless-shell)")
    # Playwright runs an event loop in this thread; Django's ORM is used beside it, not inside it.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    # As long as the pages of open_page() wait.
    playwright_api.expect.set_options(timeout=60_000)
    with playwright_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield chromium
        chromium.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(scope="package")
def strict_server() -> Iterator[Any]:
    """A server of its own: a server loads the middleware when it starts."""
    # The pages are in the language of the browser, which is English unless a test says otherwise.
    own = ["tests.browser.conftest.StrictPolicy", "django.middleware.locale.LocaleMiddleware"]
    middleware = [*own, *django_settings.MIDDLEWARE]
    with override_settings(MIDDLEWARE=middleware):
        server = LiveServer("localhost")
    yield server
    server.stop()


@pytest.fixture
def user(transactional_db: None) -> Any:
    """The superuser who is logged in."""
    return get_user_model().objects.create_superuser("demo")


@pytest.fixture
def showcase_data(user: Any, settings: Any, worker_schema: str) -> Iterator[None]:
    """Jobs in every state, workers, statistics and schedules."""
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "CRONTAB": showcase.CRONTAB}
    showcase.fill(worker_schema)
    with tasks.isolated():
        showcase.register_limited_tasks()
        yield


@pytest.fixture
def site(strict_server: Any, user: Any) -> Any:
    """The demo site, served with the policy. It has jobs if the test uses `showcase_data`, too."""
    return strict_server


def refresh_often(page: Any) -> None:
    """Refresh five times a second, an interval that the page does not offer."""
    page.evaluate("document.querySelector('#gw-interval').add(new Option('often', '0.2'))")
    page.select_option("#gw-interval", "0.2")


def session_cookie() -> str:
    """Return the session cookie of a logged-in user."""
    client = Client()
    client.force_login(get_user_model().objects.get(username="demo"))
    return client.cookies["sessionid"].value


def _is_error(message: Any) -> bool:
    return message.type == "error" and "favicon.ico" not in message.location.get("url", "")


@pytest.fixture
def open_page(browser: Any, site: Any) -> Iterator[Callable[..., Any]]:
    """Return a factory of pages of the user. Errors in the console of the browser fail the test."""
    errors: list[str] = []
    contexts: list[Any] = []

    def open_(path: str = "overview/", **options: Any) -> Any:
        context = browser.new_context(base_url=f"{site.url}/admin/graphile_worker/", **options)
        contexts.append(context)
        context.add_cookies([{"name": "sessionid", "value": session_cookie(), "url": site.url}])
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: errors.append(message.text) if _is_error(message) else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        response = page.goto(path)
        assert "default-src 'none'" in response.headers["content-security-policy"]
        page.wait_for_selector(".gw-page")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert errors == []
