"""Where the pages are, and what is left of one without its markup."""

from __future__ import annotations

import html
import re
from typing import Any

BASE = "/admin/graphile_worker/"
OVERVIEW, JOBS, QUEUES = BASE + "overview/", BASE + "job/", BASE + "jobqueue/"
RECURRING, WORKERS, ERRORS = BASE + "recurringtask/", BASE + "worker/", BASE + "errorgroup/"
ADD, ACT = JOBS + "add/", JOBS + "act/"
ALL_PAGES = (OVERVIEW, JOBS, QUEUES, RECURRING, WORKERS, ERRORS, ADD)


def job_url(job_id: int) -> str:
    return f"{JOBS}{job_id}/change/"


def body(response: Any) -> str:
    return str(response.content.decode())


def text(response: Any) -> str:
    """What a person reads: no tags, entities resolved, white space as it is shown."""
    without_head = re.sub(r"(?s)<head>.*?</head>", "", body(response))
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", without_head)).split())


def fields(response: Any) -> dict[str, str]:
    """What the forms of a page send along without being seen."""
    hidden = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', body(response))
    return {name: html.unescape(value) for name, value in hidden}


def messages(response: Any) -> list[str]:
    return [str(message) for message in response.context["messages"]]
