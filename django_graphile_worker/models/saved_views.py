"""Searches of the list of jobs that users of the admin have saved."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_graphile_worker.models.tables import table


class SavedView(models.Model):
    """A search of the list of jobs that a user has saved under a name.

    Unlike the other models, it can be written. It names its user by the text of the primary key: the users may be in
    another database, or the project may have none.
    """

    id = models.BigAutoField(primary_key=True)
    owner = models.CharField(max_length=255)
    # For the users that a view is shared with.
    owner_name = models.CharField(max_length=255)
    name = models.CharField(max_length=100)
    # The parameters of the address of the list: search, state, order, columns.
    parameters = models.JSONField(default=dict)
    is_shared = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        managed = False
        db_table = table("_private_saved_views")
        verbose_name = _("saved view")
        verbose_name_plural = _("saved views")
        default_permissions = ()
        permissions = [("share_savedview", "Can share saved views with all users")]

    def __str__(self) -> str:
        return self.name
