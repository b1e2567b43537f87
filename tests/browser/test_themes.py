"""The pages of the admin in other themes, with their real packages, in light and dark, on a desktop and on a phone.

A site with another theme is a process of its own. THEME_PICTURES=folder stores a picture of each page.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

import django
import pytest

from tests.browser import every_page, looks
from tests.browser.conftest import DESKTOP, PHONE, session_cookie
from tests.browser.themes.server import running_site
from tests.docs.pages import page as documented
from tests.support.admin_pages import BASE

pytestmark = pytest.mark.django_db(transaction=True)

PICTURES = os.environ.get("THEME_PICTURES")
# SCREENSHOTS=docs/_static stores the screenshots for the documentation.
SCREENSHOTS = os.environ.get("SCREENSHOTS")

# How each theme says that it is light or dark: a script that gets the scheme.
BY_DATA_THEME = "scheme => { document.documentElement.dataset.theme = scheme; }"
BY_CLASS = "scheme => { document.documentElement.className = scheme; }"
BY_BOOTSTRAP = "scheme => { document.documentElement.dataset.bsTheme = scheme; }"
SOME = re.compile("/(overview|job|job/add|job/[0-9]+/change)/$")
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
def page(theme: str, browser: Any, showcase_data: None, subprocess_environment: dict[str, str]) -> Iterator[Any]:
    """A page of the logged-in user on the site with the theme."""
    with running_site(f"tests.browser.themes.{theme}_site", subprocess_environment) as address:
        # The machine is dark, so that a light page shows that it follows the theme.
        context = browser.new_context(base_url=address, viewport=DESKTOP, color_scheme="dark")
        context.add_cookies([{"name": "sessionid", "value": session_cookie(), "url": address}])
        page = context.new_page()
        page.set_default_timeout(60_000)
        yield page
        context.close()


def test_pages__look_right_in_the_theme(theme: str, page: Any) -> None:
    """Charts, lists, a job, a confirmation, a form with an error; the other test visits the rest."""
    addresses = [each for each in every_page.addresses() if SOME.search(each)]
    wrong = _problems(page, theme, addresses, [("light", DESKTOP), ("dark", DESKTOP)])
    if theme == "unfold":
        _check_tokens_of_a_project(page)
    assert wrong == {}, json.dumps(wrong, indent=1)


@pytest.mark.chaos
def test_every_page__looks_right_in_the_theme_also_on_a_phone(theme: str, page: Any) -> None:
    wrong = _problems(page, theme, every_page.addresses(), [("light", DESKTOP), ("dark", PHONE)])
    if theme == "jazzmin":
        wrong |= _problems_in_a_dark_theme_of_bootswatch(page)
    if theme == "unfold":
        _take_picture_for_the_documentation(page)
    assert wrong == {}, json.dumps(wrong, indent=1)


def _problems(page: Any, theme: str, addresses: Iterable[str], schemes: Any) -> dict[str, list[str]]:
    wrong = {}
    for name in every_page.visit(page, addresses):
        for scheme, viewport in schemes:
            page.set_viewport_size(viewport)
            page.evaluate(THEMES[theme], scheme)
            if found := looks.problems(page):
                wrong[f"{name} {scheme} {viewport['width']}"] = found
            _take_picture(page, theme, name, scheme, viewport)
    return wrong


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
