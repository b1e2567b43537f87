"""How a task function is called, derived once per task from its parameters."""

from __future__ import annotations

import inspect
import logging
import typing
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from django_graphile_worker import task_functions
from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.worker.execution.helpers import Helpers
from django_graphile_worker.worker.typed_payloads.converters import Converter, converter_for

# Annotations of payloads that are passed on as they were decoded from JSON.
_PLAIN_ANNOTATIONS = (Any, object, dict, list, str, int, float, bool, None, dict[str, Any], list[Any])

# What the crontab and schedules add to payloads: the time that was due, and whether it was late.
CRON_KEY = "_cron"

logger = logging.getLogger("django_graphile_worker.worker")


@dataclass(frozen=True, slots=True)
class Binding:
    """A task function, and the arguments that it takes."""

    function: Callable[..., Any]
    takes_payload: bool = True
    takes_helpers: bool = False
    helpers_keyword: str | None = None
    convert: Converter | None = None

    def call(self, payload: Any, helpers: Helpers | None) -> Any:
        """Call the function. A payload that does not fit its annotation raises PayloadError, which is final."""
        if self.convert is not None:
            payload = _converted(self.convert, payload)
        if self.helpers_keyword is not None:
            return self.function(payload, **{self.helpers_keyword: helpers})
        if self.takes_helpers:
            return self.function(payload, helpers)
        return self.function(payload) if self.takes_payload else self.function()

    @property
    def is_plain(self) -> bool:
        """Whether the function takes the payload as it was decoded from JSON, and nothing else."""
        return self.takes_payload and not self.takes_helpers and self.convert is None


def _converted(convert: Converter, payload: Any) -> Any:
    try:
        return convert(payload, "$")
    except PayloadError as error:
        if isinstance(payload, dict) and CRON_KEY in payload:
            # Few models have a field for what the crontab and schedules add to each payload.
            return _converted(convert, {key: value for key, value in payload.items() if key != CRON_KEY})
        error.is_misfit = True
        raise


def bind(function: Callable[..., Any]) -> Binding:
    """Read the parameters of a function: (payload), (payload, helpers), or none at all."""
    signature = task_functions.read_signature(function)
    return Binding(
        function=function,
        takes_payload=signature.takes_payload,
        takes_helpers=signature.helpers is not None,
        helpers_keyword=signature.helpers_keyword,
        convert=_converter(function, signature.payload) if signature.payload is not None else None,
    )


def _converter(function: Callable[..., Any], parameter: Parameter) -> Converter | None:
    if parameter.annotation is Parameter.empty:
        return None
    try:
        annotation = resolved_annotation(function, parameter)
        return None if annotation in _PLAIN_ANNOTATIONS else converter_for(annotation)
    except Exception as error:
        # The annotation may name a type that is imported for the type checker only. Most payloads are plain, and need
        # no conversion.
        logger.warning(
            "The payload of %s stays plain: its annotation %r cannot be resolved (%s).",
            getattr(function, "__qualname__", function),
            parameter.annotation,
            error,
        )
        return None


def resolved_annotation(function: Callable[..., Any], parameter: Parameter) -> Any:
    """Return the type of a parameter, also if its annotation is a text; raise NameError if it names what is unknown."""
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    innermost = inspect.unwrap(function)
    while hasattr(innermost, "func"):
        innermost = inspect.unwrap(innermost.func)
    holder = type("Annotated", (), {"__annotations__": {"payload": parameter.annotation}})
    namespace = getattr(innermost, "__globals__", None) or getattr(type(innermost).__call__, "__globals__", {})
    return typing.get_type_hints(holder, globalns=namespace)["payload"]
