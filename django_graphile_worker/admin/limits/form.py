"""The form with the numbers of a limit."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from django_graphile_worker.api.limits import LimitStatus
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.limits import LARGEST_CONCURRENCY, LARGEST_COUNT, LimitNumbers, Rate


class LimitForm(forms.Form):
    """The three numbers of a limit, as they count now. An empty field is no limit of that kind."""

    concurrency = forms.IntegerField(
        label=gettext_lazy("At once"),
        required=False,
        min_value=1,
        max_value=LARGEST_CONCURRENCY,
        help_text=gettext_lazy("How many jobs of a key may run at the same time. Empty: any number."),
    )
    rate = forms.CharField(
        label=gettext_lazy("Rate"),
        required=False,
        max_length=40,
        help_text=gettext_lazy("How many may start in a time, such as 100/m or 300/15m. Empty: any number."),
    )
    burst = forms.IntegerField(
        label=gettext_lazy("Burst"),
        required=False,
        min_value=1,
        max_value=LARGEST_COUNT,
        help_text=gettext_lazy("How many of the starts of a rate may follow each other at once. Empty: all of them."),
    )

    def __init__(self, data: Any, *, limit: LimitStatus) -> None:
        numbers = limit.numbers
        initial = {"concurrency": numbers.concurrency, "rate": numbers.rate, "burst": numbers.burst}
        super().__init__(data, initial=initial)
        # Set by clean().
        self.numbers = numbers

    def clean_rate(self) -> Rate | None:
        try:
            text = self.cleaned_data["rate"]
            return Rate.parse(text) if text else None
        except (InvalidJobError, InvalidTypeError) as error:
            raise forms.ValidationError(str(error)) from error

    def clean(self) -> dict[str, Any]:
        values = {name: self.cleaned_data.get(name) for name in ("concurrency", "rate", "burst")}
        if not self.errors:
            try:
                self.numbers = LimitNumbers(**values, where="limit")
            except (InvalidJobError, InvalidTypeError) as error:
                self.add_error("burst", str(error))
        return values
