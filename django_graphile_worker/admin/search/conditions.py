"""The conditions of a search with their descriptions, for the help of the page and for completion."""

from __future__ import annotations

from django.utils.translation import gettext as _


def descriptions() -> list[tuple[str, str]]:
    """Return the names of the conditions, each with what it finds."""
    return [
        ("task", _("task, also a part with wildcards")),
        ("queue", _("named queue")),
        ("state", _("ready, running, scheduled, retrying, failed")),
        ("key", _("job key")),
        ("flag", _("flag")),
        ("label", _("label of a Django task")),
        ("exception", _("name of the last error")),
        ("error", _("text in the last error")),
        ("payload", _("text in the payload")),
        ("attempts", _("number of attempts")),
        ("priority", _("priority")),
        ("worker", _("worker that runs the job, or its host")),
        ("limit", _("key of a limit that the job waits for")),
        ("created", _("when the job was added")),
        ("due", _("when the job is due")),
        ("id", _("id of the job")),
    ]


def examples() -> list[tuple[str, str]]:
    """Return searches with what each finds."""
    return [
        ("#95", _("the job with this id, in any state")),
        ("charge", _("tasks, queues, keys and flags with this word in their names")),
        ("task:send_*", _("jobs of the tasks whose names begin so")),
        ("queue:eu-*", _("jobs of the queues whose names begin so")),
        ("label:emails", _("jobs of Django tasks with this label")),
        ("flag:slow", _("jobs with this flag")),
        ("key:order-*", _("jobs by their keys")),
        ("state:failed", _("jobs in this state")),
        ("attempts:>3", _("also 2..5, <2, 3")),
        ("priority:0..10", _("also >5, <0, 3")),
        ("exception:KeyError", _("jobs whose last error has this name, or ends with it after a dot")),
        ('error:"timed out"', _("text in the last error")),
        ("payload:ada@example.org", _("text anywhere in the payload")),
        ("payload.user.id:5", _("a value in the payload")),
        ("worker:web-1", _("jobs that a worker runs: its id, or its host")),
        ("limit:account:42", _("jobs that wait for the key of a limit, or have a place of it")),
        ("created:2h", _("added in the last two hours; also 2026-01-01..2026-01-31")),
        ("due:2h", _("due within two hours")),
        ("-queue:eu", _("not in this queue; also NOT queue:eu")),
        ("task:a OR task:b", _("one of both; AND, which may be left out, binds more closely than OR")),
        ("task:a (flag:slow OR attempts:>3)", _("parentheses group conditions")),
    ]
