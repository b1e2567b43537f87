"""Makes dataclasses, pydantic models and msgspec structs out of JSON payloads.

Start reading in ``converters``: it returns a converter for an annotation. ``scalars``, ``containers``,
``dataclass_fields`` and ``models`` hold what it needs for each kind of type; ``errors`` holds what converters raise.

Imports nothing else of the worker. Loaded with the first task whose payload has an annotation that is not plain JSON.
"""
