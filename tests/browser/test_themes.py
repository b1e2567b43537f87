"""The pages of the admin in other themes, with their real packages, in light and dark, on a desktop and on a phone.

A site with another theme is a process of its own. THEME_PICTURES=folder stores a picture of each page.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

import django
import pytest

from tests.browser import every_page, looks
from tests.browser.conftest import session_cookie
from tests.browser.themes.server import running_site
from tests.docs.pages import page as documented
from tests.support.admin_pages import BASE

pytestmark = pytest.mark.django_db(transaction=True)

DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
PICTURES = os.environ.get("THEME_PICTURES")
# SCREENSHOTS=docs/_static stores the screenshots for the documentation.
SCREENSHOTS = os.environ.get("SCREENSHOTS")

# How each theme says that it is light or dark: a script that gets the scheme.
BY_DATA_THEME = "scheme => { document.documentElement.dataset.theme = scheme; }"
BY_CLASS = "scheme => { document.documentElement.className = scheme; }"
BY_BOOTSTRAP = "scheme => { document.documentElement.dataset.bsTheme = scheme; }"
THEMES = {
    "unfold": BY_CLASS,
    "jazzmin": BY_BOOTSTRAP,
    "grappelli": BY_DATA_THEME,
}


@pytest.fixture(params=THEMES)
def theme(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    try:
        package = metadata(f"django-{name}")
    except PackageNotFoundError:
        pytest.skip(f"django-{name} is not installed")
    version = ".".join(map(str, django.VERSION[:2]))
    if f"Framework :: Django :: {version}" not in package.get_all("Classifier", []):
        pytest.skip(f"django-{name} {package['Version']} does not support Django {version}")
    return name


@pytest.fixture
def open_theme(
    theme: str, browser: Any, showcase_data: None, subprocess_environment: dict[str, str]
) -> Iterator[Callable[[], Any]]:
    """Return a function that opens a logged-in browser page on the site with the theme."""
    with running_site(f"tests.browser.themes.{theme}_site", subprocess_environment) as address:
        contexts = []

        def open_() -> Any:
            # The machine is dark, so that a light page shows that it follows the theme.
            context = browser.new_context(base_url=address, viewport=DESKTOP, color_scheme="dark")
            context.add_cookies([{"name": "sessionid", "value": session_cookie(), "url": address}])
            contexts.append(context)
            page = context.new_page()
            page.set_default_timeout(60_000)
            return page

        yield open_
        for context in contexts:
            context.close()


def test_every_page__looks_right_in_the_theme(theme: str, open_theme: Callable[[], Any]) -> None:
    page = open_theme()
    wrong: dict[str, list[str]] = {}
    for address in _visit_every_page(page):
        for scheme, viewport in (("light", DESKTOP), ("dark", PHONE)):
            page.set_viewport_size(viewport)
            page.evaluate(THEMES[theme], scheme)
            found = looks.problems(page)
            if found:
                wrong[f"{address} {scheme} {viewport['width']}"] = found
            _take_picture(page, theme, address, scheme, viewport)
    if theme == "jazzmin":
        wrong |= _problems_in_a_dark_theme_of_bootswatch(page)
    if theme == "unfold":
        _check_tokens_of_a_project(page)
        _take_picture_for_the_documentation(page)
    assert wrong == {}, json.dumps(wrong, indent=1)


def _problems_in_a_dark_theme_of_bootswatch(page: Any) -> dict[str, list[str]]:
    """Choose a theme of Bootswatch whose texts are white also in the light mode."""
    # The style sheets of Bootswatch ask another site for their fonts.
    page.route("https://**", lambda route: route.abort())
    page.goto(f"{BASE}overview/")
    page.evaluate(
        """() => new Promise(done => {
            const link = document.getElementById('jazzmin-theme');
            // Without its fonts, the sheet ends in an error, and applies.
            link.onload = link.onerror = done;
            link.href = link.dataset.themeBase + '/darkly/bootstrap.min.css';
        })"""
    )
    wrong = {}
    for scheme in ("light", "dark"):
        page.evaluate(BY_BOOTSTRAP, scheme)
        _take_picture(page, "darkly", "overview", scheme, DESKTOP)
        wrong[f"darkly {scheme}"] = looks.problems(page)
    return {name: found for name, found in wrong.items() if found}


def _visit_every_page(page: Any) -> Iterator[str]:
    """Open each page, and the pages that are reached by a button, and yield a name for each."""
    for address in every_page.addresses():
        response = page.goto(address, wait_until="domcontentloaded")
        assert response.status == 200, address
        page.wait_for_selector(".gw-page")
        page.evaluate(looks.SHORTEN)
        yield address
        page.set_viewport_size(DESKTOP)
        if page.locator(".gw-heading button.gw-danger, .gw-worker button.gw-danger").count():
            page.locator(".gw-heading button.gw-danger, .gw-worker button.gw-danger").first.click()
            page.wait_for_selector("button.gw-danger-solid")
            yield f"{address} confirmation"
        elif page.locator("#id_payload").count():
            page.fill("#id_payload", "{")
            page.click(".gw-page form button.gw-primary")
            page.wait_for_selector(".errorlist")
            yield f"{address} errors"


def _check_tokens_of_a_project(page: Any) -> None:
    """Load the style sheet of the guide before that of the package, as a base_site.html may do."""
    page.goto(f"{BASE}job/add/")
    sheet = re.search(r"```css\n(.*?)```", documented("guides/admin.md"), re.S)
    assert sheet is not None
    page.evaluate(
        "text => document.head.prepend(Object.assign(document.createElement('style'), {textContent: text}))", sheet[1]
    )
    style = page.eval_on_selector(
        ".gw-page button.gw-primary",
        "node => { const style = getComputedStyle(node); return [style.backgroundColor, style.borderRadius]; }",
    )
    assert style == ["rgb(109, 40, 217)", "2px"]


def _take_picture_for_the_documentation(page: Any) -> None:
    if SCREENSHOTS:
        page.set_viewport_size({"width": 1360, "height": 880})
        page.goto(next(address for address in every_page.addresses() if address.endswith("/change/")))
        page.evaluate(BY_CLASS, "light")
        page.screenshot(path=Path(SCREENSHOTS) / "admin-unfold.png")


def _take_picture(page: Any, theme: str, address: str, scheme: str, viewport: dict[str, int]) -> None:
    if PICTURES:
        name = "".join(letter if letter.isalnum() else "-" for letter in address.removeprefix(BASE))
        path = Path(PICTURES) / f"{theme}-{scheme}-{viewport['width']}-{name.rstrip('-')}.png"
        page.screenshot(path=path, full_page=True)
