"""The ids of task results: the number of a job, with a checksum.

An id is an opaque string of 16 characters that are safe in a URL. The checksum covers the alias of the backend: an id
that was mistyped, or that another backend made, is refused without a query. It is no secret. Who may read a result is
decided by the view that takes the id.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, urlsafe_b64encode
from struct import Struct
from struct import error as StructError  # noqa: N812 - the name of a class
from zlib import crc32

_LENGTH = 16
_layout = Struct(">qI")


def result_id(job_id: int, alias: str) -> str:
    """Return the id of the result of a job."""
    return urlsafe_b64encode(_layout.pack(job_id, _checksum(job_id, alias))).decode()


def job_id_of(identity: object, alias: str) -> int | None:
    """Return the number of the job, or None for a value that ``result_id()`` did not return for this backend."""
    if not isinstance(identity, str) or len(identity) != _LENGTH or not identity.isascii():
        return None
    try:
        job_id, checksum = _layout.unpack(b64decode(identity, altchars=b"-_", validate=True))
    except (binascii.Error, StructError):
        return None
    # Several texts can have the same bytes; only one of them is the id.
    is_ours = checksum == _checksum(job_id, alias) and identity == result_id(job_id, alias)
    return job_id if is_ours else None


def _checksum(job_id: int, alias: str) -> int:
    return crc32(f"django_graphile_worker:{alias}:{job_id}".encode())
