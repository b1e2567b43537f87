"""manage.py graphile_worker resume."""

from __future__ import annotations

import pytest
from django.core.management import CommandError

from django_graphile_worker import pause, pauses
from tests.support.operating import operate

pytestmark = pytest.mark.django_db


def test_resume__ends_a_pause() -> None:
    pause(flag="bulk")
    assert operate("resume", "--flag", "bulk").out == "Resumed: flag bulk.\n"
    assert pauses() == []


def test_resume_of_what_is_not_paused__says_so_and_suggests() -> None:
    pause(flag="bulk")
    assert operate("resume", "--flag", "bulky").err == "The flag bulky was not paused. Did you mean 'bulk'?\n"


def test_resume_all__ends_every_pause() -> None:
    pause(flag="bulk")
    pause(queue="mail", create=True)
    assert [each["name"] for each in operate("resume", "--all", "--json").json] == ["bulk", "mail"]
    assert pauses() == []
    assert operate("resume", "--all").err == "Nothing was paused.\n"


@pytest.mark.parametrize("arguments", [(), ("--all", "--flag", "bulk")])
def test_resume__needs_one_target(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="One of --queue, --task, --flag and --all"):
        operate("resume", *arguments)
