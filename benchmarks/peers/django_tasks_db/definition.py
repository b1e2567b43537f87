"""django-tasks-db: the database backend of Django's tasks; one job at a time in each process."""

from __future__ import annotations

from benchmarks.commands import Command
from benchmarks.peers.peer import CPU, HTTP, HTTP_ASYNC, ORM, Peer, Place, Setting, left_by_sql, processes_of

GRID: dict[str, list[Setting]] = {
    ORM: [{"processes": 2}, {"processes": 1}, {"processes": 4}],
    HTTP: [{"processes": 8}, {"processes": 16}],
    HTTP_ASYNC: [{"processes": 8}, {"processes": 16}],
    CPU: [{"processes": 2}, {"processes": 3}],
}


def commands(place: Place, work: str, setting: Setting) -> list[Command]:
    options = ["--no-startup-delay", "--interval=0.05", "--verbosity=0"]
    return processes_of(place.module("django", "db_worker", *options), setting)


LEFT = left_by_sql("select count(*) from django_tasks_database_dbtaskresult where status in ('READY', 'RUNNING')")
PEER = Peer("django_tasks_db", "django-tasks-db", GRID, commands, LEFT, table="django_tasks_database_dbtaskresult")
