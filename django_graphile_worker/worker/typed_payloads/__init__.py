"""Converts JSON payloads to dataclasses, pydantic models and msgspec structs.

Begin with ``converters``: it returns a converter for an annotation. ``third_party_models`` has the code for the models
of other packages. Imports nothing else of the worker.
"""
