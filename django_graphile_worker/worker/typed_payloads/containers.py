"""Converters of arrays and objects, built from the converters of their items."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.worker.typed_payloads.errors import Converter, key_paths, misfit, unhashable

# By type: the function that makes the container from a list.
CONTAINERS: dict[Any, Callable[[Any], Any]] = {list: list, tuple: tuple, set: set, frozenset: frozenset}


def mapping_of(convert_key: Converter, convert_value: Converter) -> Converter:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise misfit(path, "an object", value)
        return {
            convert_key(key, key_path): convert_value(item, key_path)
            for (key, item), key_path in zip(value.items(), key_paths(path, value), strict=True)
        }

    return convert


def key_of(convert_value: Converter) -> Converter:
    """Return a converter of keys.

    JSON has only strings as keys; json.dumps() writes a number, true, false or null as the text of its value.
    """

    def convert(key: Any, path: str) -> Any:
        try:
            return convert_value(key, path)
        except PayloadError as error:
            message = str(error)
        try:
            return convert_value(_scalar(key), path)
        except ValueError:
            raise PayloadError(f"{message.removesuffix('.')} as the key.", path=path) from None

    return convert


def _scalar(text: str) -> Any:
    value = json.loads(text)
    if isinstance(value, dict | list):
        raise ValueError("a container")
    return value


def array_of(make: Callable[[Any], Any], convert_item: Converter) -> Converter:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise misfit(path, "an array", value)
        items = [convert_item(item, f"{path}[{index}]") for index, item in enumerate(value)]
        try:
            return make(items)
        except TypeError:
            index = next(index for index, item in enumerate(items) if not _is_hashable(item))
            raise unhashable(f"{path}[{index}]", items[index]) from None

    return convert


def _is_hashable(item: Any) -> bool:
    try:
        hash(item)
    except TypeError:
        return False
    return True


def fixed_tuple_of(converters: list[Converter]) -> Converter:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, list) or len(value) != len(converters):
            got = f"{len(value)}" if isinstance(value, list) else ""
            raise misfit(path, f"an array of {len(converters)} items", value, got)
        return tuple(
            convert_item(item, f"{path}[{index}]")
            for index, (convert_item, item) in enumerate(zip(converters, value, strict=True))
        )

    return convert
