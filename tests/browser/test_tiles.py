"""The tiles of the overview, with large numbers, in Chromium."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.admin.overview import figures
from django_graphile_worker.sql.inspection import job_list
from tests.browser.conftest import OpenPage
from tests.support.operating import execute

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("showcase_data")]

WIDTHS = (1920, 1440, 1280, 1024, 390)
# The longest of the words.
ABOUT = [
    ("fr", "environ 669"),
    *(pytest.param(*each, marks=pytest.mark.chaos) for each in [("en", "about 669,000"), ("de", "etwa 669.000")]),
]
NUMBERS = {"ready": 669_000, "scheduled": 12_345_678, "retrying": 1_234_567, "permanently_failed": 98_765}
# The numbers whose last digit is outside its tile, or under another element.
CUT = """all => all.flatMap(node => {
  const range = document.createRange();
  range.selectNodeContents(node);
  const tile = node.closest('.gw-tile').getBoundingClientRect();
  return [...range.getClientRects()].filter(box => {
    const top = document.elementFromPoint(box.right - 1, box.top + box.height / 2);
    return box.right > tile.right - 1 || box.left < tile.left + 1 || !node.closest('.gw-tile').contains(top);
  }).map(() => node.textContent);
})"""


@pytest.mark.parametrize(("language", "about"), ABOUT)
def test_tiles__show_large_numbers_whole(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch, language: str, about: str
) -> None:
    columns = ", ".join(f"{name} = {number}" for name, number in NUMBERS.items())
    execute(f"update {{schema}}._private_backlog_samples set {columns}")
    count_states = job_list.count_states

    def too_many(*arguments: Any, **options: Any) -> Any:
        return {state: job_list.Count(number=5_000, is_more=True) for state in count_states(*arguments, **options)}

    monkeypatch.setattr(figures, "count_states", too_many)
    page = open_page("overview/", locale=language)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("window.scrollTo(0, document.querySelector('#gw-tiles').offsetTop)")
        assert any(value.startswith(about) for value in page.locator(".gw-tile-value").all_inner_texts())
        assert page.eval_on_selector_all(".gw-tile-value bdi", CUT) == [], width
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width
