"""Adds a stream of specs of any length, in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from random import Random
from typing import Any

from django.db import connections, transaction

from django_graphile_worker.api.connection import QueueConnection, open_place
from django_graphile_worker.api.copying import Copier, are_copyable
from django_graphile_worker.api.entries import entries, prepared
from django_graphile_worker.job_options import JobKeyMode
from django_graphile_worker.jobs import JobSpec
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.adding import add_jobs as sql_add_jobs
from django_graphile_worker.sql.adding.add_jobs import Batch
from django_graphile_worker.sql.adding.specs import Entry
from django_graphile_worker.sql.overlap import overlapping

# A statement of jobs without a key: large enough to be fast, small enough for the buffer of a socket.
SENT_SPECS = 1_000
# How many specs of a stream are taken at first, and the limits of the specs that are taken and added together: large
# enough to be fast, small enough for the memory of the process.
FIRST_SPECS = 200
STREAMED_SPECS, STREAMED_CHARACTERS = 20_000, 4 * 1024 * 1024


def add_stream(specs: Iterable[JobSpec], place: Place) -> int:
    """Add the specs in pieces, and return their number.

    Specs are taken from the iterable while no statement runs, because its code may use the same connection. Then they
    are encoded while the server adds those before them.
    """
    remaining, count, ahead = iter(specs), 0, FIRST_SPECS
    with open_place(place) as queue, transaction.atomic(using=queue.alias):
        copier = Copier(queue, place)
        while taken := _take(remaining, min(ahead, STREAMED_SPECS), is_in_memory=isinstance(specs, list | tuple)):
            taken = prepared(taken, place)
            if are_copyable(taken) and copier.is_permitted():
                size = copier.add(taken, first=count, returning=False)[1]
            else:
                size = _send_entries(queue, entries(taken, place, first=count))
            count += len(taken)
            # The next specs fit into memory, too, if they are of the size of these.
            ahead = min(4 * ahead, -(-STREAMED_CHARACTERS * len(taken) // size))
    return count


_random = Random().random


def _take(remaining: Iterator[JobSpec], most: int, *, is_in_memory: bool) -> list[JobSpec]:
    """Take specs, no more than fit into memory: after many small payloads there may be large ones.

    The server waits meanwhile. So the length of one payload in four is computed, at a random place.
    """
    if is_in_memory:
        return list(islice(remaining, STREAMED_SPECS))
    taken: list[JobSpec] = []
    room = STREAMED_CHARACTERS
    while room > 0 and (four := list(islice(remaining, min(4, most - len(taken))))):
        measured = four[int(_random() * len(four))]
        room -= 4 * _text_length(getattr(measured, "payload", None))
        taken += four
    return taken


_CONTAINERS = (dict, list, tuple)


def _text_length(value: Any, levels: int = 3) -> int:
    """Return about how many characters a payload has, without encoding it: the texts in its first levels."""
    if isinstance(value, str):
        return len(value)
    if not levels or not isinstance(value, _CONTAINERS):
        return 0
    length = 0
    for item in value.values() if isinstance(value, dict) else value:
        # Most items are numbers or texts, and a call takes longer than they do.
        if isinstance(item, str):
            length += len(item)
        elif type(item) is not int:
            length += _text_length(item, levels - 1)
    return length


def _send_entries(queue: QueueConnection, waiting: Iterator[Entry]) -> int:
    """Add the entries, and return the number of their characters."""
    batches = sql_add_jobs.batches(
        waiting, most_entries=STREAMED_SPECS, most_unkeyed=SENT_SPECS, most_characters=STREAMED_CHARACTERS
    )
    size = 0
    while added := _send_some(queue, batches):
        size += added
    return size


def _send_some(queue: QueueConnection, batches: Iterator[Batch]) -> int:
    """Add batches, no more than the memory of the process has room for, and return the number of their characters."""
    size = 0
    with overlapping(connections[queue.alias]):
        for batch in batches:
            size += sum(map(len, batch.payloads))
            if batch.mode is JobKeyMode.UNSAFE_DEDUPE:
                sql_add_jobs.add_one_by_one(queue.cursor, batch, schema=queue.schema, notify=queue.notify)
            else:
                call = sql_add_jobs.batch_call(batch, schema=queue.schema, notify=queue.notify, returning=False)
                queue.cursor.execute(*call)
            if size >= STREAMED_CHARACTERS:
                break
    return size
