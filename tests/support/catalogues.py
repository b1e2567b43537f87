"""Extracts the texts of the package, and brings the catalogues of its translations up to date.

``make messages`` writes the texts that are missing into each catalogue, with an empty translation, removes the texts
that no code has any more, and compiles. It needs no programs of GNU gettext.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polib

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PACKAGE = CHECKOUT / "django_graphile_worker"
LOCALE = PACKAGE / "locale"

# The arguments of each function that are texts: context, text, plural.
SIMPLE, PLURAL, CONTEXT, CONTEXT_AND_PLURAL = (None, 0, None), (None, 0, 1), (0, 1, None), (0, 1, 2)
FUNCTIONS: dict[str, tuple[int | None, int, int | None]] = {
    "gettext": SIMPLE,
    "gettext_lazy": SIMPLE,
    "gettext_noop": SIMPLE,
    "_": SIMPLE,
    "ngettext": PLURAL,
    "ngettext_lazy": PLURAL,
    "pgettext": CONTEXT,
    "pgettext_lazy": CONTEXT,
    "npgettext": CONTEXT_AND_PLURAL,
    "npgettext_lazy": CONTEXT_AND_PLURAL,
}
# The functions of the modules that must not import Django.
PHRASES = {PACKAGE / "crontab" / "describe.py", *(PACKAGE / "schedules").glob("*.py")}
PHRASE_FUNCTIONS = {"say": SIMPLE, "say_number": PLURAL}
# A text in an expression of a template: {{ name|default:_("nobody") }}.
IN_EXPRESSION = re.compile(r"""\b_\((?P<quote>["'])(?P<text>.*?)(?P=quote)\)""")


class Text(NamedTuple):
    """A text that is translated."""

    text: str
    plural: str | None = None
    context: str | None = None


def texts() -> dict[Text, set[str]]:
    """Return every text of the package, with the files that have it."""
    found: dict[Text, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for text in _python_texts(path):
            found.setdefault(text, set()).add(path.relative_to(CHECKOUT).as_posix())
    for path in sorted((PACKAGE / "templates").rglob("*.html")):
        for text in _template_texts(path.read_text(encoding="utf-8")):
            found.setdefault(text, set()).add(path.relative_to(CHECKOUT).as_posix())
    return found


def _python_texts(path: Path) -> Iterator[Text]:
    functions = FUNCTIONS | PHRASE_FUNCTIONS if path in PHRASES else FUNCTIONS
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
        if name not in functions:
            continue
        context, text, plural = (_literal(node, position) for position in functions[name])
        if text:
            yield Text(text, plural, context)


def _literal(node: ast.Call, position: int | None) -> str | None:
    if position is None or position >= len(node.args):
        return None
    argument = node.args[position]
    return argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else None


def _template_texts(source: str) -> Iterator[Text]:
    from django.template import engines
    from django.templatetags.i18n import BlockTranslateNode, TranslateNode

    nodes: Any = engines["django"].from_string(source).template.nodelist  # type: ignore[attr-defined]
    for node in nodes.get_nodes_by_type(TranslateNode):
        yield Text(node.filter_expression.var.literal, None, _context(node))
    for node in nodes.get_nodes_by_type(BlockTranslateNode):
        singular, _variables = node.render_token_list(node.singular)
        plural = node.render_token_list(node.plural)[0] if node.plural else None
        yield Text(singular, plural, _context(node))
    for tag in re.findall(r"\{[{%](.*?)[%}]\}", source):
        for found in IN_EXPRESSION.finditer(tag):
            yield Text(found["text"])


def _context(node: Any) -> str | None:
    return None if node.message_context is None else str(node.message_context.var)


def catalogue_path(language: str) -> Path:
    return LOCALE / language / "LC_MESSAGES" / "django.po"


def languages() -> list[str]:
    return sorted(path.name for path in LOCALE.iterdir() if path.is_dir())


def key_of(entry: polib.POEntry | polib.MOEntry) -> Text:
    return Text(entry.msgid, entry.msgid_plural or None, entry.msgctxt)


def update(language: str) -> tuple[int, int]:
    """Bring a catalogue up to date; return how many texts were added, and how many have no translation."""
    path = catalogue_path(language)
    catalogue = polib.pofile(str(path), wrapwidth=110)
    known = {key_of(entry): entry for entry in catalogue if not entry.obsolete}
    current = texts()
    entries = [known.get(text) or _new_entry(text, _plural_forms(catalogue)) for text in sorted(current, key=_order)]
    for entry in entries:
        entry.occurrences = [(name, "") for name in sorted(current[key_of(entry)])]
        if is_format(entry.msgid) and "python-format" not in entry.flags:
            entry.flags.append("python-format")
    catalogue.clear()
    catalogue.extend(entries)
    catalogue.save(str(path))
    catalogue.save_as_mofile(str(path.with_suffix(".mo")))
    return len(set(current) - set(known)), sum(not is_translated(entry) for entry in entries)


def _order(text: Text) -> tuple[str, str]:
    return text.text.lower(), text.context or ""


def _new_entry(text: Text, plural_forms: int) -> polib.POEntry:
    if text.plural is None:
        return polib.POEntry(msgid=text.text, msgctxt=text.context, msgstr="")
    plurals = dict.fromkeys(range(plural_forms), "")
    return polib.POEntry(msgid=text.text, msgid_plural=text.plural, msgctxt=text.context, msgstr_plural=plurals)


def _plural_forms(catalogue: polib.POFile) -> int:
    found = re.match(r"nplurals=(\d+)", catalogue.metadata["Plural-Forms"])
    assert found is not None
    return int(found[1])


def is_format(text: str) -> bool:
    return bool(placeholders(text))


def placeholders(text: str) -> list[str]:
    """Return the placeholders of a text, of ``%`` and of ``str.format``, in order."""
    return sorted(re.findall(r"%\(\w+\)[sd]|\{\w+\}|%s", text))


def is_translated(entry: polib.POEntry) -> bool:
    if entry.msgid_plural:
        return all(entry.msgstr_plural.values()) and bool(entry.msgstr_plural)
    return bool(entry.msgstr)


def main() -> int:
    import django
    from django.conf import settings

    # The libraries that the templates load: "admin_list" and that of this package.
    settings.configure(
        INSTALLED_APPS=[
            "django.contrib.contenttypes",
            "django.contrib.auth",
            "django.contrib.admin",
            "django_graphile_worker",
        ],
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}},
    )
    django.setup()
    missing = 0
    for language in languages():
        added, untranslated = update(language)
        missing += untranslated
        path = catalogue_path(language).relative_to(CHECKOUT)
        print(f"{path}: {added} texts added, {untranslated} without a translation")  # noqa: T201
    if missing:
        print("Translate the entries whose msgstr is empty, and run the command again.")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
