"""``doctor``: examines settings, database, schema and workers, and corrects what is safe to correct."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from django.core.management.base import CommandError

from django_graphile_worker.management.arguments import Argument
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.examinations import (
    ERROR,
    LEVELS,
    WARNING,
    Finding,
    Fix,
    examine,
    owns_schema,
)
from django_graphile_worker.management.operator.formatting import GAP, counted
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.text import escaped

FIXED, NOT_FIXED = "fixed", "failed"
STYLES = {"ok": "SUCCESS", FIXED: "SUCCESS", "note": "MIGRATE_LABEL", "warning": "WARNING"}


class Doctor(Verb):
    name = "doctor"
    summary = "Examine settings, database, schema and workers; say what is wrong, and what to do."
    description = (
        "Listen and notify as workers do, and compare clocks, functions, indexes, vacuum, transactions, rights, tasks "
        "and versions with what the queue needs. Problems come last, each with its remedy; exit with 1 if there is an "
        "error or a warning. Changes nothing without --fix, and never a job. Each statement that examines takes at "
        "most ADMIN_STATEMENT_TIMEOUT; building an index and vacuuming take as long as they need."
    )
    examples = ("", "--fix", "--json")
    arguments = (
        Argument(
            "--fix",
            "",
            "Correct what is safe while workers run: restore functions, build indexes (see repair), let autovacuum run "
            "on tables for which it is off, and vacuum tables with many dead rows.",
        ),
    )

    def run(self, console: Console, options: Options) -> None:
        place = place_of(console.using, console.installation)
        found, fixed = list(examine(place)), []
        if options["fix"]:
            fixed = list(_fixed(console, place, [each for each in found if each.fix]))
            if fixed:
                found = list(examine(place))
        found.sort(key=lambda finding: LEVELS.index(finding.level))
        errors, warnings = (sum(finding.level == level for finding in found) for level in (ERROR, WARNING))
        if console.is_json:
            report = {"database": place.using, "schema": place.settings.schema, "healthy": not errors + warnings}
            findings = [_as_dict(finding) for finding in found]
            console.dump(report | {"findings": findings, "fixes": [_as_dict(each) for each in fixed]})
        else:
            _write(console, [*fixed, *found], marks_fixable=not options["fix"])
        if errors or warnings:
            fixable = sum(finding.fix is not None for finding in found)
            advice = f" --fix corrects {fixable} of them." if fixable and not options["fix"] else ""
            raise CommandError(f"Found {counted(errors, 'error')} and {counted(warnings, 'warning')}.{advice}")


def _fixed(console: Console, place: Place, found: Sequence[Finding]) -> Iterator[Finding]:
    """Correct what was found, and say it before: an index, for example, may take long. Yield what was done."""
    if found and not owns_schema(place):
        yield Finding(NOT_FIXED, "Nothing was changed. Run it as the owner of the schema.", name="role")
        return
    for finding in found:
        if finding.fix:
            console.note(finding.fix.announcement)
            done = _fix(finding.name, finding.fix)
            if done:
                yield done


def _fix(name: str, fix: Fix) -> Finding | None:
    """Return what was done; None if nothing is left to do, as after another fix."""
    try:
        text = fix.run()
    except Exception as error:  # a lack of rights, a lock, or a time limit; the other fixes are tried
        return Finding(NOT_FIXED, " ".join(str(error).split()), name=name)
    return Finding(FIXED, text, name=name) if text else None


def _as_dict(finding: Finding) -> dict[str, object]:
    values: dict[str, object] = {"name": finding.name, "level": finding.level, "text": finding.text}
    if finding.level in (FIXED, NOT_FIXED):
        return values
    return values | {"remedy": finding.remedy, "is_fixable": finding.fix is not None}


def _write(console: Console, findings: Sequence[Finding], *, marks_fixable: bool) -> None:
    width = shutil.get_terminal_size().columns if console.out.isatty() else None
    level_size, size = max(len(each.level) for each in findings), max(len(each.name) for each in findings)
    indent = " " * (level_size + size + 2 * len(GAP))
    for finding in findings:
        paint = getattr(console.style, STYLES.get(finding.level, "ERROR"))
        # The width of a painted text is not that of its characters.
        head = f"{paint(finding.level)}{' ' * (level_size - len(finding.level))}{GAP}{finding.name:<{size}}{GAP}"
        remedy = f"{finding.remedy} (--fix)" if finding.fix and marks_fixable else finding.remedy
        lines = [line for text in (finding.text, remedy) for line in _lines(escaped(text), width, len(indent))]
        console.say(head + f"\n{indent}".join(lines))


def _lines(text: str, width: int | None, indent: int) -> list[str]:
    """Return the text in lines that fit a terminal; a file or a pipe has no limit."""
    if width is None:
        return [text] if text else []
    return textwrap.wrap(text, max(width - indent, 30), break_on_hyphens=False, break_long_words=False)
