"""The catalogues have every text of the package, in every language."""

from __future__ import annotations

import re
from pathlib import Path

import django
import polib
import pytest

from tests.support import catalogues
from tests.support.catalogues import Text, is_translated, key_of, placeholders

LANGUAGES = ("de", "fr")
WAY_OUT = "Run: make messages"


@pytest.fixture(scope="module")
def texts() -> dict[Text, set[str]]:
    return catalogues.texts()


def catalogue(language: str) -> polib.POFile:
    return polib.pofile(str(catalogues.catalogue_path(language)))


def translations(entry: polib.POEntry | polib.MOEntry) -> list[str]:
    return list(entry.msgstr_plural.values()) if entry.msgid_plural else [entry.msgstr]


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


def test_texts__are_whole(texts: dict[Text, set[str]]) -> None:
    """A text that begins or ends with a space is joined with others, in an order that other languages do not have."""
    assert [text for text in texts if text.text != text.text.strip()] == []
