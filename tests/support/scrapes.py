"""Scrapes of a worker's /metrics, and its probes."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families


class Response(NamedTuple):
    """The answer of a worker."""

    status: int
    text: str


def get(port: int, path: str) -> Response:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as response:
            return Response(response.status, response.read().decode())
    except urllib.error.HTTPError as error:
        return Response(error.code, error.read().decode())


def is_up(port: int) -> bool:
    """Return whether something answers, and is ready."""
    try:
        return get(port, "/ready").status == 200
    except OSError:
        return False


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    @property
    def names(self) -> set[str]:
        return {sample.name for sample in self.samples}

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum of all series with these labels."""
        name = f"graphile_worker_{name}"
        return sum(each.value for each in self.samples if each.name == name and labels.items() <= each.labels.items())

    def value(self, name: str, **labels: str) -> float:
        """Return the only series with these labels."""
        name = f"graphile_worker_{name}"
        (value,) = [each.value for each in self.samples if each.name == name and labels.items() <= each.labels.items()]
        return value


def scrape(port: int) -> Scrape:
    response = get(port, "/metrics")
    assert response.status == 200, response.text
    return Scrape(response.text)
