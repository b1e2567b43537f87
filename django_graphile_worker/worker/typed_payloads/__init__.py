"""Converts JSON payloads to dataclasses, pydantic models and msgspec structs.

Start reading in ``converters``: it returns a converter for an annotation. ``scalars``, ``containers``,
``dataclass_fields`` and ``third_party_models`` hold the code for each kind of type; ``errors`` holds the errors of
converters.

Imports nothing else of the worker. Loaded with the first task whose payload has an annotation that is not plain JSON.
"""
