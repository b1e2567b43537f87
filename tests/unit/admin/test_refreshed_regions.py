"""The parts of a page that a refresh sends."""

from __future__ import annotations

import re

from django_graphile_worker.admin.refreshed_regions import changed_regions

PAGE = """<html><head><title>Jobs &lt;1&gt;</title></head><body><nav>no region</nav>
<div class="x" id="gw-list" data-refresh><div>nested</div>
<table><tr data-key="1"><td>one</td></tr><tr data-key="2"><td>two &lt;/tr&gt;</td></tr></table>
<form><input type="hidden" name="csrfmiddlewaretoken" value="a"></form></div>
<ul data-refresh id="gw-tiles"><li>3</li></ul><div data-refresh>no id</div></body></html>"""


def hashes(answer: str) -> frozenset[str]:
    return frozenset(re.findall('data-hash="([0-9a-f]{12})"', answer))


def test_first_refresh__sends_all_regions_whole_and_nothing_else() -> None:
    answer = changed_regions(PAGE, frozenset())
    assert answer.startswith("<title>Jobs &lt;1&gt;</title><template><div ")
    assert re.findall('<template><[^>]* id="([^"]*)"', answer) == ["gw-list", "gw-tiles"]
    assert "no region" not in answer
    assert "no id" not in answer
    assert len(hashes(answer)) == 4
    without_hashes = re.sub(' data-hash="[^"]*"', "", answer)
    assert "<div>nested</div>" in without_hashes
    assert '<tr data-key="2"><td>two &lt;/tr&gt;</td></tr></table>' in without_hashes
    assert without_hashes.endswith("<li>3</li></ul></template>")


def test_next_refresh__sends_only_what_changed() -> None:
    known = hashes(changed_regions(PAGE, frozenset()))
    assert changed_regions(PAGE, known) == ""
    changed = changed_regions(PAGE.replace("two", "zwei"), known)
    assert "gw-tiles" not in changed
    assert '<tr data-key="1" data-same></tr>' in changed
    assert "one" not in changed
    assert "zwei &lt;/tr&gt;" in changed
    assert len(hashes(changed) - known) == 2, "the region and the row"


def test_masked_token__is_no_change() -> None:
    known = hashes(changed_regions(PAGE, frozenset()))
    assert changed_regions(PAGE.replace('value="a"', 'value="b"'), known) == ""
