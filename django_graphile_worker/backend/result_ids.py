"""The ids of task results: the number of a job, with a checksum.

An id is an opaque string of 16 characters that are safe in a URL. The checksum covers the installation, so an id that
was mistyped, or that another backend made, is refused without a query. It is no secret: whoever may read a result is
decided by the view that takes the id.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from struct import Struct
from zlib import crc32

_LENGTH = 16
_layout = Struct(">qI")


def result_id(job_id: int, installation: str) -> str:
    """Return the id of the result of a job."""
    return urlsafe_b64encode(_layout.pack(job_id, _checksum(job_id, installation))).decode()


def job_id_of(identity: object, installation: str) -> int | None:
    """Return the number of the job, or None for a value that ``result_id()`` did not return for this installation."""
    if not isinstance(identity, str) or len(identity) != _LENGTH or not identity.isascii():
        return None
    try:
        job_id, checksum = _layout.unpack(urlsafe_b64decode(identity))
    except (binascii.Error, ValueError):
        return None
    # The decoder skips characters that are not in its alphabet; the comparison refuses such texts.
    is_ours = checksum == _checksum(job_id, installation) and identity == result_id(job_id, installation)
    return job_id if is_ours else None


def _checksum(job_id: int, installation: str) -> int:
    return crc32(f"django_graphile_worker:{installation}:{job_id}".encode())
