"""DATABASE_URL, as the demo site and the tests read and write it."""

from __future__ import annotations

import pytest

from testproject import databases


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:p%40ss%2Fword@db.example.com:6432/shop?sslmode=require",
        "postgresql://app@/shop?host=/var/run/postgresql",
    ],
)
def test_database_url__survives_the_way_through_django_settings(url: str) -> None:
    entry = databases.from_url(url)
    assert databases.from_url(databases.to_url(entry)) == entry


def test_database_url__is_split_into_django_names() -> None:
    entry = databases.from_url("postgresql://app:secret@db.example.com:6432/shop?sslmode=require")
    assert entry == {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "shop",
        "USER": "app",
        "PASSWORD": "secret",
        "HOST": "db.example.com",
        "PORT": "6432",
        "OPTIONS": {"sslmode": "require"},
    }
