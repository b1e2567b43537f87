"""The form that saves a view."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from django_graphile_worker.admin.saved_views.saved_views import LONGEST_NAME


class SavedViewForm(forms.Form):
    """The name of a view, and whether all users of the site see it."""

    name = forms.CharField(
        label=_("Name"),
        max_length=LONGEST_NAME,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=_("Your view with the same name is replaced."),
    )
    is_shared = forms.BooleanField(
        label=_("Share"), required=False, help_text=_("All users who may see jobs get a link to it.")
    )

    def __init__(self, *args: Any, may_share: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not may_share:
            del self.fields["is_shared"]
