"""Offers results to the database: as many at once as it takes, and one that it will not take by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psycopg
from psycopg import errors

from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.database.connection import WRONG_SERVER
from django_graphile_worker.worker.outcomes import Outcome
from django_graphile_worker.worker.release.pending import PendingReleases
from django_graphile_worker.worker.release.refused import RejectedReleases

# How many results one statement takes, at most.
BATCH = 2000
# After a refusal so many times fewer: four steps down to one, and each may cost a deadline.
SHRINKAGE = 8
# Nothing is known of what was under way when the connection went; a server that only
# reads will take none of it, however it is offered.
CONNECTION_TROUBLE = (psycopg.OperationalError, psycopg.InterfaceError, *WRONG_SERVER)
# An answer, and a plain one: nothing was done. Fewer may do.
TOO_MUCH = (errors.QueryCanceled, errors.OutOfMemory, errors.ProgramLimitExceeded)

AnyItem = TypeVar("AnyItem", bound=Outcome | HeldQueue)
Answer = TypeVar("Answer")


class Offering:
    """How much the database takes at once, as far as is known."""

    def __init__(
        self, refused: RejectedReleases, *, tell: Callable[[psycopg.Error, float], None], clock: Callable[[], float]
    ) -> None:
        self._refused = refused
        self._tell = tell
        self._clock = clock
        self.portion = BATCH

    def offer(
        self, hand: PendingReleases, items: list[AnyItem], some: list[AnyItem], act: Callable[[list[AnyItem]], Answer]
    ) -> Answer | None:
        """The first of the items; None if the database refuses: fewer then, down to one, so that one keeps no other."""
        began = self._clock()
        try:
            answer = act(some)
        except psycopg.Error as error:
            if len(some) > 1:
                self.portion = max(len(some) // SHRINKAGE, 1)
            if isinstance(error, CONNECTION_TROUBLE) and not isinstance(error, TOO_MUCH):
                # Perhaps one of these breaks the connection: the others have their turn first.
                items[:] = items[len(some) :] + some
                raise
            if len(some) == 1:
                spent = self._clock() - began
                is_plain = not isinstance(error, TOO_MUCH)
                self._tell(error, self._refused.set_aside(items.pop(0), hand, spent=spent, is_plain=is_plain))
            elif isinstance(error, TOO_MUCH):
                self._tell(error, 0.0)
            return None
        self.portion = min(self.portion * 2, BATCH)
        self._refused.note_success(hand)
        return answer
