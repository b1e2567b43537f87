"""Every crontab on the pages on recurring tasks is valid, and the reference has every option."""

from __future__ import annotations

import re
import textwrap

import pytest

from django_graphile_worker.crontab import parse_crontab
from django_graphile_worker.crontab.parser import OPTIONS
from django_graphile_worker.crontab.patterns import SHORTHANDS
from django_graphile_worker.exceptions import CrontabError
from tests.docs.pages import code_words, page

GUIDE, REFERENCE = "guides/cron.md", "reference/crontab.md"


@pytest.mark.parametrize("name", [GUIDE, REFERENCE])
def test_every_crontab_on_the_page_can_be_read(name: str) -> None:
    blocks = re.findall(r"```crontab\n(.*?)```", page(name), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        assert parse_crontab(block)


def test_the_crontab_among_the_settings_can_be_read() -> None:
    [text] = re.findall(r'"CRONTAB": """\n(.*?)"""', page(GUIDE), flags=re.DOTALL)
    assert len(parse_crontab(text)) == 3


def test_the_reference_has_every_option_and_shorthand() -> None:
    words = code_words(page(REFERENCE))
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page(REFERENCE), flags=re.MULTILINE))
    assert rows == {name: option.attribute for name, option in OPTIONS.items()}
    assert set(SHORTHANDS) | set(SHORTHANDS.values()) <= set(words)


def test_the_reference_shows_a_mistake_as_it_is_told() -> None:
    [shown] = re.findall(r"```text\n(.*?)```", page(REFERENCE), flags=re.DOTALL)
    lines = [line for line in textwrap.dedent(shown).splitlines() if line.endswith(("send_report", "tz=Paris"))]
    with pytest.raises(CrontabError) as caught:
        parse_crontab("\n".join(line.strip() for line in lines))
    assert f"{caught.value}\n" == shown
