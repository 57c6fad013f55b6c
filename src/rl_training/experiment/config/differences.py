"""Differences between two configs."""

from collections.abc import Mapping
from typing import Any

EARLIER_DEFAULTS = {"env_workers": (0, "auto")}  # both values give the same results


def differences(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Dotted keys with different values, and both values."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in dict.fromkeys([*a, *b]):
        first, second = a.get(key), b.get(key)
        if isinstance(first, dict) and isinstance(second, dict):
            found |= differences(first, second, f"{prefix}{key}.")
        elif first != second and not (first in (same := EARLIER_DEFAULTS.get(prefix + key, ())) and second in same):
            found[prefix + key] = (first, second)
    return found
