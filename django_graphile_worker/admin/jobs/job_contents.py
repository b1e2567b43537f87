"""What the page of a job shows of its payload, its errors, its result, and as code that adds it again."""

from __future__ import annotations

import json
import pprint
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import ngettext

from django_graphile_worker import conf
from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.jobs.states import flag_names
from django_graphile_worker.admin.shown_progress import shown_progress
from django_graphile_worker.job_flags import headers_in, without_headers, without_run_flags
from django_graphile_worker.job_options import OPTIONS
from django_graphile_worker.payloads import RawPayload, decode_leniently
from django_graphile_worker.redaction import HIDDEN, redact_text
from django_graphile_worker.results.reading import Attempt, Result, ResultStatus, result_from
from django_graphile_worker.sql.inspection.job_detail import MAX_PAYLOAD, JobDetail, add_job_call
from django_graphile_worker.sql.inspection.job_list import State
from django_graphile_worker.sql.results import cancellation_text, read_results

# Beyond these limits a branch is shown as plain text.
MAX_LEVELS = 30
MAX_NODES = 2_000
OPEN_LEVELS = 3
LONGEST_LEAF = 5_000


class PayloadTree:
    """The renderer of one payload, which counts the nodes that it has rendered."""

    def __init__(self) -> None:
        self._nodes = 0

    def render(self, value: Any, level: int = 0, key: SafeString | str = "") -> SafeString:
        """Render a value with its key in front of it. The key is folded together with the value."""
        self._nodes += 1
        if isinstance(value, dict | list) and value:
            if level >= MAX_LEVELS or self._nodes > MAX_NODES:
                return _leaf("text", to_json(value), key)
            return self._branch(value, level, key)
        if isinstance(value, str):
            return _leaf("string", to_json(value), key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return _leaf("number" if is_number else "word", to_json(value), key)

    def _branch(self, value: dict[str, Any] | list[Any], level: int, own_key: SafeString | str) -> SafeString:
        pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        items = format_html_join(
            "",
            "<li>{}</li>",
            ((self.render(item, level + 1, _key(key)),) for key, item in pairs),
        )
        number = ngettext("%(count)s item", "%(count)s items", len(pairs)) % {"count": len(pairs)}
        return format_html(
            '<details class="gw-json"{}><summary>{}{} <span class="gw-quiet">{}</span></summary><ul>{}</ul></details>',
            " open" if level < OPEN_LEVELS and len(pairs) <= 100 else "",
            own_key,
            "{…}" if isinstance(value, dict) else "[…]",
            number,
            items,
        )


def _key(key: str | int) -> SafeString:
    return format_html('<span class="gw-json-key">{}</span> ', to_json(key) if isinstance(key, str) else key)


def _leaf(kind: str, text: str, key: SafeString | str) -> SafeString:
    shown = text if len(text) <= LONGEST_LEAF else f"{text[:LONGEST_LEAF]}…"
    return format_html('{}<span class="gw-json-{}">{}</span>', key, kind, shown)


def to_json(value: Any, indent: int | None = None) -> str:
    """Return JSON that UTF-8 can encode: write half a surrogate pair, which JSON allows, as an escape."""
    try:
        text = json.dumps(value, ensure_ascii=False, indent=indent)
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    except (ValueError, RecursionError):
        return "…"
    return text


def indented(text: str) -> str:
    """Return a payload as the field of a form shows it."""
    value = decode_leniently(text)
    return text if isinstance(value, RawPayload) else to_json(value, indent=2)


LONGEST_ERROR = 100_000

_FRAME = re.compile(r'\s*File "(?P<file>.+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib(?:64)?/python\d|<frozen |node_modules|node:internal")
_HEADER = "Traceback (most recent call last):"


@dataclass(slots=True)
class Frame:
    """A frame of a traceback; lines of code are added while it is parsed."""

    file: str
    line: str
    function: str
    code: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.code)

    @property
    def is_library(self) -> bool:
        return bool(_LIBRARY.search(self.file))


@dataclass(slots=True)
class Block:
    """Adjacent parts of one kind: "text", "own" frames, or "library" frames."""

    kind: str
    text: str = ""
    frames: list[Frame] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ParsedError:
    """The first line of an error, and the rest in blocks."""

    summary: str
    blocks: list[Block]


def parse_error(error: str) -> ParsedError:
    """Split an error into blocks. Lines that are not part of a traceback become text."""
    text = error[:LONGEST_ERROR]
    summary, _, rest = text.partition("\n")
    blocks = list(_blocks(rest.strip("\n").split("\n"))) if rest.strip() else []
    # The last line of a traceback repeats the summary.
    if blocks and blocks[-1].kind == "text" and blocks[-1].text.strip() == summary.strip():
        blocks.pop()
    return ParsedError(summary, blocks)


def _blocks(lines: list[str]) -> Iterator[Block]:
    block: Block | None = None
    for line in lines:
        found = _FRAME.fullmatch(line)
        if block is not None and block.frames and not found and line.startswith("    "):
            block.frames[-1].code.append(line[4:])
            continue
        if not found and line.strip() == _HEADER:
            continue
        frame = Frame(found["file"], found["line"], found["function"] or "") if found else None
        kind = "text" if frame is None else "library" if frame.is_library else "own"
        if block is None or block.kind != kind:
            if block is not None:
                yield block
            block = Block(kind)
        if frame is None:
            block.text += line + "\n"
        else:
            block.frames.append(frame)
    if block is not None:
        yield block


def read_result(alias: str, job_id: int) -> Result | None:
    """Read what is kept of a job."""
    with databases.reading(alias) as (cursor, schema):
        row = read_results(cursor, [job_id], schema=schema).get(job_id)
    return None if row is None else result_from(row)


def result_context(found: Result | None, *, sees_payloads: bool) -> dict[str, Any]:
    """Return what a page shows of a result: the progress, the value and the attempts."""
    if found is None:
        return {"result": None, "progress": None}
    has_result = bool(found.attempts) or (found.is_finished and found.status is not ResultStatus.FAILED)
    started_at = None if found.is_finished else found.last_started_at
    progress = shown_progress(found.progress, sees_payloads=sees_payloads, started_at=started_at)
    return {"result": _shown(found, sees_payloads) if has_result else None, "progress": progress}


def _shown(found: Result, sees_payloads: bool) -> dict[str, Any]:
    return {
        "status": found.status.value,
        "status_name": found.status.label,
        "finished": formatting.exact_time(found.finished_at) if found.finished_at else "",
        "cancellation": _cancellation(found, sees_payloads),
        "value": _value(found, sees_payloads),
        "attempts": list(_attempts(found.attempts, sees_payloads)),
    }


def _cancellation(found: Result, sees_payloads: bool) -> str:
    if found.status is not ResultStatus.CANCELLED:
        return ""
    text = cancellation_text(found.cancelled_by or "", found.cancel_reason or "")
    return text if sees_payloads else redact_text(text)


def _value(found: Result, sees_payloads: bool) -> Any:
    if found.status is not ResultStatus.SUCCEEDED:
        return ""
    if not sees_payloads:
        return HIDDEN
    return found.value if isinstance(found.value, RawPayload) else PayloadTree().render(found.value)


def _attempts(attempts: tuple[Attempt, ...], sees_payloads: bool) -> Iterator[dict[str, Any]]:
    for number, attempt in enumerate(attempts, start=1):
        error = attempt.traceback or ""
        yield {
            "number": number,
            "worker": attempt.worker_id or formatting.EMPTY_VALUE,
            "started": formatting.relative_time(attempt.started_at),
            "duration": formatting.duration(_seconds(attempt)),
            "exception": attempt.exception_class or "",
            "error": parse_error(error if sees_payloads else redact_text(error)) if error else None,
        }


def _seconds(attempt: Attempt) -> float | None:
    if attempt.started_at is None or attempt.ended_at is None:
        return None
    return (attempt.ended_at - attempt.started_at).total_seconds()


def add_job_code(job: JobDetail, *, sees_payload: bool) -> dict[str, str]:
    """Return the code as "python" and "sql", with HIDDEN in place of a payload that the user may not see.

    Return nothing when the payload cannot be written as code, or the task is unknown.
    """
    is_whole = len(job.payload_text) < MAX_PAYLOAD
    value = decode_leniently(job.payload_text) if is_whole else RawPayload("")
    if isinstance(value, RawPayload) or not job.task_identifier:
        return {}
    value = value if sees_payload else HIDDEN
    try:
        json_text, python_text = to_json(value), pprint.pformat(value, width=88, sort_dicts=False)
    except (ValueError, RecursionError):
        return {}
    options, schema = _options(job, sees_payload=sees_payload), conf.current().schema
    return {
        "python": _python(job.task_identifier, python_text, options | _headers(job, sees_payload=sees_payload)),
        "sql": add_job_call(job.task_identifier, json_text, options, schema=schema),
    }


def _options(job: JobDetail, *, sees_payload: bool) -> dict[str, Any]:
    """Return the options that add the job again, without those that have their defaults."""
    # The code adds another job, which is not the run of a schedule.
    flags = without_run_flags(flag_names(job.flags_text))
    values = {
        "queue_name": job.queue_name,
        "run_at": future_run_at(job),
        "max_attempts": job.max_attempts,
        "job_key": job.key,
        "priority": job.priority,
        # Like the payload, headers may hold what the user may not see.
        "flags": (flags if sees_payload else without_headers(flags)) or OPTIONS["flags"].default,
    }
    return {name: value for name, value in values.items() if value is not None and value != OPTIONS[name].default}


def _headers(job: JobDetail, *, sees_payload: bool) -> dict[str, Any]:
    """Return the flags and the headers in the form in which Python adds them."""
    flags = without_run_flags(flag_names(job.flags_text))
    headers = headers_in(flags)
    if not headers:
        return {}
    return {"flags": without_headers(flags), "headers": headers if sees_payload else HIDDEN}


def future_run_at(job: JobDetail) -> datetime | None:
    """Return the time of a scheduled job; None for all others, and for times that Python cannot represent.

    The time of a job that has failed is that of its next attempt, which a new job does not wait for.
    """
    is_later = job.state is State.SCHEDULED and formatting.EARLIEST < job.run_at < formatting.LATEST
    return job.run_at if is_later else None


def _python(task: str, payload: str, options: Mapping[str, Any]) -> str:
    arguments = [repr(task), payload]
    imports = ["from django_graphile_worker import add_job"]
    for name, value in options.items():
        if isinstance(value, datetime):
            imports.insert(0, "from datetime import datetime")
            arguments.append(f"{name}=datetime.fromisoformat({value.isoformat()!r})")
        else:
            arguments.append(f"{name}={value!r}")
    body = ",\n".join("    " + argument.replace("\n", "\n    ") for argument in arguments)
    return "\n".join([*imports, "", f"add_job(\n{body},\n)"])
