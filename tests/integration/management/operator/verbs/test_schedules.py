"""``schedules``: the group of verbs."""

from __future__ import annotations

import pytest
from django.core.management.base import CommandError
from django.test import override_settings

from tests.support.operating import operate

pytestmark = pytest.mark.django_db


def test_unknown_verb__is_suggested() -> None:
    with pytest.raises(CommandError) as refused:
        operate("schedules", "lst")
    assert "expected a verb (list, show, add," in str(refused.value)
    assert "got 'lst'. Did you mean 'list'?" in str(refused.value)


def test_options__may_precede_or_follow_the_verb() -> None:
    assert operate("schedules", "--json", "list").json == operate("schedules", "list", "--json").json


def test_messages__are_english_whatever_the_language_of_the_site() -> None:
    with override_settings(LANGUAGE_CODE="de"), pytest.raises(CommandError, match="task"):
        operate("schedules", "add", "x" * 300, "unknown", "--cron", "61 * * * *")
