"""Dates of tables in other orders than ISO 8601, such as 31/01/2026, 1/31/2026 9:30 PM and 2026/01/31."""

from __future__ import annotations

import re
from collections.abc import Collection

DAY, MONTH, ANY = "day", "month", "any"  # which of them comes first; any for dates that show the same in both orders
_DATE = re.compile(r"(\d{1,2})([/.-])(\d{1,2})\2(\d{4}|\d{2})(?![\d/.-])[ T,]*(.*)")
_YEAR_FIRST = re.compile(r"(\d{4})([/.-])(\d{1,2})\2(\d{1,2})(?![\d/.-])[ T,]*(.*)")
_CLOCK = re.compile(r"(\d{1,2})(:\d{2}.*?)\s*([ap]m)?", re.IGNORECASE)


class UnclearDates(ValueError):
    """It is not clear whether the day or the month of the dates comes first."""


def looks_like_date(word: str) -> bool:
    return bool(_DATE.match(word) or _YEAR_FIRST.match(word))


def order_of(words: Collection[str]) -> str:
    """The order of day and month that the dates show, "" if they do not. With points, the day is first: 31.01.2026."""
    found = (match for word in words if (match := _DATE.match(word)) and len(match[4]) == 4)
    parts = {(int(match[1]), match[2], int(match[3])) for match in found}
    if all(first == second for first, _, second in parts):  # 05/05/2026, or the year is first
        return ANY
    may_be_day = all(second <= 12 for _, _, second in parts)
    may_be_month = all(mark != "." and first <= 12 for first, mark, _ in parts)
    return "" if may_be_day == may_be_month else DAY if may_be_day else MONTH


def to_iso(text: str, order: str) -> str:
    """Rewrites a date and its time of the day as ISO 8601; other text is returned as it is."""
    if order and (match := _YEAR_FIRST.fullmatch(text)):
        year, _, month, day, clock = match.groups()
    elif order and (match := _DATE.fullmatch(text)):
        first, _, second, year, clock = match.groups()
        day, month = (first, second) if order != MONTH else (second, first)
    else:
        return text
    return f"{year}-{month:0>2}-{day:0>2}" + (f"T{_hours_of_day(clock)}" if clock else "")


def _hours_of_day(clock: str) -> str:
    """09:30 for 9:30, 21:30 for 9:30 PM."""
    if not (match := _CLOCK.fullmatch(clock)):
        return clock
    hour, rest, half = match.groups()
    hour = hour if half is None else str(int(hour) % 12 + 12 * (half.lower() == "pm"))
    return f"{hour:0>2}{rest}"
