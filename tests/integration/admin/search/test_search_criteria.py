"""The search box: text to terms and criteria, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from django.test import Client

from django_graphile_worker.admin.search.job_search import SearchQuery, parse_search
from django_graphile_worker.admin.search.name_lookup import NameLookup
from django_graphile_worker.admin.search.search_query import SearchTerm, join_terms
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State
from django_graphile_worker.sql.inspection.known_names import Names
from tests.support import admin_pages as pages
from tests.support.factories import make_failed_job, make_job


class SomeNames(NameLookup):
    """Three tasks."""

    def match(self, kind: str, patterns: Sequence[str]) -> Names:
        return Names(("send_a", "send_b"), True) if list(patterns) == ["send\\_%"] else super().match(kind, patterns)


def parse(text: str, *, sees_payloads: bool = True) -> SearchQuery:
    return parse_search(text, SomeNames(sees_payloads=sees_payloads))


class TestTerms:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("task:send queue:eu", {"tasks": ("send",), "queues": ("eu",)}),
            ('key:"a b" key:c', {"keys": ("a b", "c")}),
            (r'error:"say \"no\""', {"errors": ('say "no"',)}),
            ("17", {"ids": (17,)}),
            ("id:1,2", {"ids": (1, 2)}),
            ("priority:3", {"priority": (3, 3)}),
            ("priority:-5..5", {"priority": (-5, 5)}),
            ("payload.user.id:5", {"payload": ((("user", "id"), "5"),)}),
            ("task:send_*", {"tasks": ("send_a", "send_b")}),
            ("#17", {"ids": (17,)}),
            ("attempts:>3 priority:<=0", {"attempts": (4, None), "priority": (None, 0)}),
            ("attempts:2..5 attempts:..4", {"attempts": (2, 4)}),
            ("state:failed", {"states": (State.FAILED,)}),
            ("state:ready,waiting", {"states": (State.READY, State.SCHEDULED, State.RETRYING)}),
            ("payload:a error:b", {"payload_texts": ("a",), "errors": ("b",)}),
            ("-task:a", {"excluded_tasks": ("a",)}),
            ("task:a OR task:b", {"tasks": ("a", "b")}),
            ("task:a -queue:eu", {"tasks": ("a",), "none_of": (Criteria(queues=("eu",)),)}),
            ("task:a OR queue:eu", {"any_of": ((Criteria(tasks=("a",)), Criteria(queues=("eu",))),)}),
            ("task:a (task:b OR task:a)", {"tasks": ("a",)}),
            ("nothing_like_it", {"ids": (0,)}),
            (
                "flag:slow worker:w exception:KeyError",
                {"flags": ("slow",), "workers": ("w",), "error_names": ("KeyError",)},
            ),
        ],
    )
    def test_become_criteria(self, text: str, expected: dict[str, Any]) -> None:
        query = parse(text)
        assert query.criteria == Criteria(**expected)
        assert not query.mistakes

    def test_of_time_are_ranges(self) -> None:
        created = parse("created:2026-01-01..2026-01-31").criteria.created_at
        assert [time.isoformat() for time in created if time] == [
            "2026-01-01T00:00:00+00:00",
            "2026-01-31T23:59:59.999999+00:00",
        ]
        low, high = parse("due:2h").criteria.run_at
        assert low
        assert high
        assert (high - low).total_seconds() == 7200

    @pytest.mark.parametrize(
        "text",
        [
            "tusk:a", "id:x", "priority:high", "created:soon", "payload.token:x", 'task:""', "task:", "state:fast",
            "attempts:..", "priority:99999", "key:******", "error:x", "limit:x",
        ],
    )  # fmt: skip
    def test_that_are_invalid_are_reported(self, text: str) -> None:
        query = parse(text, sees_payloads=False)
        assert query.criteria == Criteria()
        assert len(query.mistakes) == 1

    def test_whose_name_is_mistyped_say_how_to_find_a_key(self) -> None:
        (mistake,) = parse("taks:5").mistakes
        assert mistake.startswith("taks:5: expected one of id:, key:, ")
        assert mistake.endswith("to find a job key with a colon, write key: before it")

    @pytest.mark.parametrize("text", ["id:1 " * 31, "key:" + "k" * 2_000, "a b c d e f g h i"])
    def test_that_are_too_many_or_too_long_are_reported(self, text: str) -> None:
        """A search that silently loses its last condition finds more than was asked for."""
        (mistake,) = parse(text).mistakes
        assert "expected at most" in mistake

    def test_that_were_mistyped_stay_in_the_search_box_and_in_every_link(self, admin_page: Client) -> None:
        for _ in range(60):
            make_failed_job("print_invoice")
        response = admin_page.get(pages.JOBS, {"q": "taks:print_invoice priority:0", "state": "failed"})
        context = response.context
        assert context["query"] == "taks:print_invoice priority:0"
        links = [tab["url"] for tab in context["tabs"]] + [term["url"] for term in context["terms"]]
        assert all("taks" in link for link in [*links, context["next_url"]])

    def test_survive_formatting_and_parsing(self) -> None:
        values = ["plain", "with space", 'quo"te', "back\\slash", "a:b", "ünï", "'"]
        written = join_terms([SearchTerm("key", value) for value in values])
        assert parse(written).criteria.keys == tuple(values)

    def test_a_bare_word_finds_the_names_that_have_it(self, admin_page: Client) -> None:
        make_job("send", queue_name="eu", key="k1")
        make_job("send", key="report:5")
        words = ["send", "eu", "k1", "report:5", "boom", "boom:5"]
        numbers = [2, 1, 1, 1, 0, 0]
        for word, number in zip(words, numbers, strict=True):
            page = admin_page.get(pages.JOBS, {"q": word})
            assert page.context["query"] == word
            assert len(page.context["rows"]) == number
            assert ("No task, queue, key or flag has" in pages.text(page)) == (number == 0)

    def test_the_filter_form_becomes_terms(self, admin_page: Client) -> None:
        given = {"filter_task": "a b", "filter_priority": "1..2", "q": "queue:eu", "state": "ready"}
        response = admin_page.get(pages.JOBS, given)
        assert response.status_code == 302
        followed = admin_page.get(response["Location"])
        assert followed.context["query"] == 'queue:eu task:"a b" priority:1..2'
        assert followed.context["state"] == "ready"
