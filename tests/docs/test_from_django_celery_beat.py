"""The page about django-celery-beat: its example of a table is read, and its table of fields has every field."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from django_graphile_worker.celery_beat.translation import KINDS, BeatRow, Target, read_table
from tests.docs.pages import page

PAGE = "guides/from-django-celery-beat.md"
# What beat itself writes, and what every row has.
UNSAID = {"name", "task", "kind", "schedule", "last_run_at", "total_run_count", "date_changed"}


def test_table_of_tasks__is_read(tmp_path: Path) -> None:
    found = re.search(r"```json\n(.*?)```", page(PAGE), re.DOTALL)
    assert found is not None
    file = tmp_path / "tasks.json"
    file.write_text(found[1])
    assert read_table([str(file)]) == {
        "proj.tasks.nightly_report": Target("send_report"),
        "proj.tasks.sync": Target("sync_stock", ("warehouse", "limit"), {}, {"queue_name": "stock", "max_attempts": 3}),
        "proj.tasks.heartbeat": None,
    }


def test_fields__are_all_on_the_page() -> None:
    rows = re.findall(r"^\| (`.+?) \|", page(PAGE), re.MULTILINE)
    said = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    columns = {each.name.removeprefix("is_") for each in dataclasses.fields(BeatRow)}
    assert columns - UNSAID | set(KINDS) <= said
