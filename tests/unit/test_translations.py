"""The catalogues have every text of the package, in every language, and the texts have the words of the glossary."""

from __future__ import annotations

import re
from pathlib import Path

import django
import polib
import pytest

from tests.support import catalogues
from tests.support.catalogues import CHECKOUT, PACKAGE, Text, is_translated, key_of, placeholders

LANGUAGES = ("de", "fr")
WAY_OUT = "Run: make messages"

# Words that the pages had, and the words that they have now.
OLD_WORDS = {
    r"permanent": "Failed",
    r"for good": "Failed",
    r"to be retried": "Retrying",
    r"in the hand of": "Running",
    r"left alone": "skipped",
    r"lovely": "",
    r"\bno jobs here": "No jobs match.",
    r"\bgo on\b": "Continue",
    r"stop here": "Stop",
    r"heard of": "last heartbeat",
    r"mended": "fix",
    r"beating": "Worker lost",
    r"what became of": "Activity",
    r"what people did": "Audit log",
    r"\bdied\b": "Worker crashes, Worker lost",
    r"add (it )?again|adds this job again": "Duplicate",
    r"left empty|empty means": "Default:",
    r"the table; jobs, about|jobs table": "Storage",
    r"estimated jobs": "Jobs (estimate)",
    r"such task|does not have this task": "Task not defined in this project.",
    r"job queues?\b": "queue",
    r"even though it is alive": "I understand; unlock anyway",
    r"continue searching": "Search older jobs",
    r"no heartbeat from": "Worker lost: …",
}


@pytest.fixture(scope="module")
def texts() -> dict[Text, set[str]]:
    return catalogues.texts()


def catalogue(language: str) -> polib.POFile:
    return polib.pofile(str(catalogues.catalogue_path(language)))


def translations(entry: polib.POEntry | polib.MOEntry) -> list[str]:
    return list(entry.msgstr_plural.values()) if entry.msgid_plural else [entry.msgstr]


def test_extraction__finds_texts_of_python_of_templates_and_of_crontabs(texts: dict[Text, set[str]]) -> None:
    assert Text("Lower numbers run first.") in texts
    assert Text("Nothing is paused.") in texts
    assert Text("%(number)s job", "%(number)s jobs") in texts
    assert Text("d", None, "unit") in texts
    assert Text("Every minute", "Every %(number)s minutes") in texts
    assert Text("… and %(number)s more.", "… and %(number)s more.") in texts


def test_catalogues__are_those_of_the_supported_languages() -> None:
    assert catalogues.languages() == list(LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_catalogue__has_exactly_the_texts_of_the_package(language: str, texts: dict[Text, set[str]]) -> None:
    entries = catalogue(language)
    known = {key_of(entry) for entry in entries if not entry.obsolete}
    assert sorted(set(texts) - known) == [], WAY_OUT
    assert sorted(known - set(texts)) == [], WAY_OUT
    assert [entry.msgid for entry in entries if entry.obsolete] == [], WAY_OUT


@pytest.mark.parametrize("language", LANGUAGES)
def test_catalogue__translates_everything(language: str) -> None:
    entries = catalogue(language)
    assert [entry.msgid for entry in entries if not is_translated(entry)] == []
    assert [entry.msgid for entry in entries if entry.fuzzy] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_catalogue__keeps_placeholders(language: str) -> None:
    for entry in catalogue(language):
        expected = [placeholders(entry.msgid), placeholders(entry.msgid_plural or entry.msgid)]
        for translation in translations(entry):
            assert placeholders(translation) in expected, (entry.msgid, translation)
            # A single % would be a mistake in a text that is formatted.
            if "%(" in entry.msgid:
                assert not re.search(r"(?<!%)%(?![(%])", translation.replace("%%", "")), translation


@pytest.mark.parametrize("language", LANGUAGES)
def test_catalogue__has_all_plural_forms(language: str) -> None:
    found = re.match(r"nplurals=(\d+)", catalogue(language).metadata["Plural-Forms"])
    assert found
    for entry in catalogue(language):
        if entry.msgid_plural:
            assert sorted(entry.msgstr_plural) == list(range(int(found[1]))), entry.msgid


@pytest.mark.parametrize("language", LANGUAGES)
def test_compiled_catalogue__is_up_to_date(language: str) -> None:
    compiled = polib.mofile(str(catalogues.catalogue_path(language).with_suffix(".mo")))
    expected = {key_of(entry): translations(entry) for entry in catalogue(language)}
    assert {key_of(entry): translations(entry) for entry in compiled} == expected, WAY_OUT


@pytest.mark.parametrize("language", LANGUAGES)
def test_catalogue__agrees_with_the_catalogues_of_django(language: str) -> None:
    """Django merges the catalogues of all apps: a text without a context has one translation on the whole site."""
    root = Path(django.__file__).parent
    theirs: dict[str, str] = {}
    for name in ("contrib/admin", "conf", "contrib/auth", "contrib/contenttypes"):
        for entry in polib.pofile(str(root / name / "locale" / language / "LC_MESSAGES" / "django.po")):
            if not (entry.msgctxt or entry.msgid_plural or entry.obsolete or entry.fuzzy):
                theirs.setdefault(entry.msgid, entry.msgstr)
    for entry in catalogue(language):
        if not (entry.msgctxt or entry.msgid_plural):
            assert theirs.get(entry.msgid) in (None, "", entry.msgstr), f"{entry.msgid!r}: give it a context"


def test_texts__have_one_word_for_one_thing(texts: dict[Text, set[str]]) -> None:
    for text in texts:
        for pattern, better in OLD_WORDS.items():
            for form in (text.text, text.plural or ""):
                assert not re.search(pattern, form, re.IGNORECASE), f"{form!r}: the word is now {better!r}"


def test_texts__are_whole(texts: dict[Text, set[str]]) -> None:
    """A text that begins or ends with a space is joined with others, in an order that other languages do not have."""
    assert [text for text in texts if text.text != text.text.strip()] == []


def test_pages__format_numbers_in_the_language_of_the_user() -> None:
    """``f"{number:,}"`` writes the separators of English."""
    pattern = re.compile(r":,(\.\d+f)?\}|:\.\d+%\}")
    for path in sorted((PACKAGE / "admin").rglob("*.py")):
        found = [line for line in path.read_text(encoding="utf-8").splitlines() if pattern.search(line)]
        assert found == [], f"{path.relative_to(CHECKOUT)}: use formatting.number()"
