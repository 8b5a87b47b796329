"""One way to write a value as bytes, so that a digest means the same everywhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping


def canonical_json(value: Mapping[str, object]) -> str:
    """Sorted keys, no spaces, UTF-8, no NaN. Raises ValueError for what JSON cannot say."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Mapping[str, object]) -> str:
    """SHA-256 of the canonical JSON, as 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
