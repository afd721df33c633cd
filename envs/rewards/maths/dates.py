"""Dates, times of day and scores: three kinds of answers that look like arithmetic, `2024-05-01`, `10:30`, `4-1`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import gcd

from envs.rewards.maths.text import flatten
from envs.rewards.maths.verdict import Verdict

_YEAR = "january february march april may june july august september october november december"
_MONTHS = _YEAR.split()
_NAMES = "|".join(f"{month[:3]}(?:{month[3:]})?" if len(month) > 3 else month for month in _MONTHS) + "|sept"
_MONTH, _DAY = rf"(?P<month>{_NAMES})\.?", r"(?P<day>[0-9]{1,2})(?:\^?\{?(?:st|nd|rd|th)\}?)?"
_DATES = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"(?:the )?{_MONTH}\s?{_DAY}(?:[, ]+(?P<year>[0-9]{{4}}))?",
        rf"(?:the )?{_DAY}(?: of)? {_MONTH}(?:[, ]+(?P<year>[0-9]{{4}}))?",
        rf"{_MONTH}[, ]+(?P<year>[0-9]{{4}})",
        r"(?P<year>[12][0-9]{3})(?P<mark>[-/.])(?P<month>[0-9]{1,2})(?P=mark)(?P<day>[0-9]{1,2})",
        r"(?P<month>[0-9]{1,2})(?P<mark>[-/.])(?P<day>[0-9]{1,2})(?P=mark)(?P<year>[12][0-9]{3})",
        r"(?P<month>[0-9]{1,2})/(?P<year>[12][0-9]{3})",
        r"(?P<year>[12][0-9]{3}) ?\u5e74 ?(?P<month>[0-9]{1,2}) ?\u6708(?: ?(?P<day>[0-9]{1,2}) ?[\u65e5\u53f7])?",
        r"(?P<month>[0-9]{1,2}) ?\u6708 ?(?P<day>[0-9]{1,2}) ?[\u65e5\u53f7]",
    )
)
_MOMENT = re.compile(r"[0-9]\s?[-:/][\s0-9]|[A-Za-z]{3}|[0-9]\s?(?:\\text\s?\{\s?)?[ap]\.?m|[\u5e74\u6708]")
_WEEKDAY = re.compile(r"(?:on )?(?:mon|tues|wednes|thurs|fri|satur|sun)day[, ]+", re.IGNORECASE)
_CLOCK = re.compile(
    r"(?:at )?(?P<hour>[0-9]{1,2})(?:\s?[:.]\s?(?P<minute>[0-5][0-9])(?:\s?:\s?(?P<second>[0-5][0-9]))?)?"
    r"\s?(?:(?P<half>[ap])\.?\s?m\.?|(?P<whole>o'?\s?clock|hrs|hours))?"
    r"(?: in the (?P<part>morning|afternoon|evening))?",
    re.IGNORECASE,
)
_SPOKEN = {"noon": (12, 0, "p"), "midday": (12, 0, "p"), "midnight": (12, 0, "a")}
_SCORE = re.compile(r"[0-9]{1,4}\s?-\s?[0-9]{1,4}")
_UNCERTAIN = re.compile(r"[0-9]+/[0-9]{4}")


@dataclass(frozen=True, slots=True)
class Time:
    """`3:45 PM` is (15, 45, 0) and certain, `3:45` (3, 45, 0) and either of two; `15:45` is certain."""

    hour: int
    minute: int
    second: int
    certain: bool
    marked: bool  # with am or pm


def parse_date(text: str) -> tuple[int, int, str] | None:
    """`July 4, 1776`, `4 July 1776` and `1776-07-04` are (7, 4, "1776"); a month of a year has the day 0."""
    words = _WEEKDAY.sub("", flatten(text), count=1)
    for form in _DATES:
        match = form.fullmatch(words)
        if match is None:
            continue
        prefix, group = match["month"][:3].lower(), match.groupdict()
        month = int(prefix) if prefix.isdigit() else next(at for at, m in enumerate(_MONTHS, 1) if m.startswith(prefix))
        day = int(group.get("day") or 0)
        if month > 12 and day <= 12 and group.get("mark"):
            month, day = day, month
        return (month, day, group.get("year") or "") if 1 <= month <= 12 and day <= 31 else None
    return None


def parse_time(text: str) -> Time | None:
    """A time of day: with a colon, with am or pm, or in words. A bare `3` is none."""
    words = flatten(text).strip(". ")
    spoken = _SPOKEN.get(words.lower().removeprefix("at ").removeprefix("12 ").strip())
    if spoken is not None:
        return Time(12 if spoken[2] == "p" else 0, 0, 0, certain=True, marked=True)
    match = _CLOCK.fullmatch(words)
    if match is None or not (match["half"] or match["whole"] or match["part"] or (match["minute"] and ":" in words)):
        return None
    hour, half = int(match["hour"]), (match["half"] or "").lower()
    if match["part"]:
        half = "a" if match["part"].lower() == "morning" else "p"
    if hour > 24 or (half and not 1 <= hour <= 12):
        return None
    certain = bool(half) or hour > 12 or hour == 0 or (match["hour"][0] == "0" and len(match["hour"]) == 2)
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return Time(hour % 24, int(match["minute"] or 0), int(match["second"] or 0), certain, bool(half))


def same_time(ours: Time, theirs: Time) -> bool:
    """`3:45` may be `3:45 PM` with the half of the day left out, but not 15:45."""
    exact = ours.certain is theirs.certain or not (ours.marked or theirs.marked)
    hours = (ours.hour, theirs.hour) if exact else (ours.hour % 12, theirs.hour % 12)
    return hours[0] == hours[1] and (ours.minute, ours.second) == (theirs.minute, theirs.second)


def is_no_arithmetic(text: str) -> bool:
    """Whether it can only be a date, a time or a score, of which nothing is computed: `10:30` is no third, `4-1` no 3.

    `1:10` may be a ratio, `10/5` a quotient: those are left to the rest.
    """
    words = flatten(text)
    if _SCORE.fullmatch(words):
        return True
    if ":" in words and parse_time(words) is not None:
        hour, _, minute = words.partition(":")
        return not (hour.isdigit() and minute.isdigit()) or hour[0] == "0" or gcd(int(hour), int(minute)) > 1
    return parse_date(words) is not None and not _UNCERTAIN.fullmatch(words)


def same_moment(answer: str, gold: str) -> Verdict:
    """Two dates, times or scores, of which nothing is computed; None where it takes other rules."""
    if not _MOMENT.search(answer) and not _MOMENT.search(gold):
        return None
    ours, theirs = parse_time(answer), parse_time(gold)
    if ours is not None and theirs is not None:
        return same_time(ours, theirs)
    day = parse_date(gold)
    if day is not None and parse_date(answer) == day:
        return True
    if (is_no_arithmetic(answer) or is_no_arithmetic(gold)) and not (":" in answer and ":" in gold):
        return flatten(answer).replace(" ", "").replace("-", ":") == flatten(gold).replace(" ", "").replace("-", ":")
    return None
