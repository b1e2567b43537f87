"""The names that a search offers instead of an unknown one."""

from __future__ import annotations

from time import process_time

from django_graphile_worker.admin.search.questions import close_names


def test_close_names__are_found() -> None:
    names = ["billing:send_receipt", "billing:send_invoice", "sync"]
    assert close_names("reciept", names) == ["billing:send_receipt"]
    assert close_names("syncc", names) == ["sync"]


def test_close_names__are_found_among_very_many() -> None:
    names = [f"task{number}" * 5 for number in range(5_000)]
    assert close_names("reciept", [*names, "billing:send_receipt"]) == ["billing:send_receipt"]


def test_close_names__take_no_long_time_with_names_that_are_made_for_it() -> None:
    """Whoever may add jobs can make names, and the search of anybody compares them."""
    names = [("ab" * 64)[number % 2 : 128 - number % 3] + str(number) for number in range(5_000)]
    for word in ("ab" * 25, "ab" * 64, "a" * 4_000):
        began = process_time()
        close_names(word, names)
        assert process_time() - began < 3
