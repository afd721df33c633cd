"""Chinese around mathematics, in the words that the other rules read: `约15厘米` is `\\approx 15\\text{ cm}`."""

from __future__ import annotations

import re

MAX_CHINESE = 400  # characters of a text that is spelled otherwise
HAN = "\u3400-\u9fff"
_HAN = re.compile(f"[{HAN}]")
_DIGITS = {"〇": 0, "零": 0, **{digit: at for at, digit in enumerate("一二三四五六七八九", 1)}, "两": 2}
_PLACES = {"十": 10, "百": 100, "千": 1000}
_NUMERAL = re.compile(f"[{''.join((*_DIGITS, *_PLACES))}]{{1,7}}")
_SIZES = {"万亿": 12, "亿": 8, "百万": 6, "千万": 7, "万": 4, "千": 3, "百": 2}
_LENGTHS = {"米": "m", "厘米": "cm", "毫米": "mm", "分米": "dm", "千米": "km", "公里": "km", "微米": "um", "纳米": "nm"}
_SIZED = {
    f"{size}{name}": f"{prefix}{unit}"
    for size, prefix in (("千", "k"), ("兆", "M"), ("毫", "m"), ("微", "u"), ("纳", "n"))
    for name, unit in (
        *(("克", "g"), ("秒", "s"), ("牛", "N"), ("牛顿", "N"), ("焦", "J"), ("焦耳", "J"), ("瓦", "W"), ("瓦特", "W")),
        *(("伏", "V"), ("伏特", "V"), ("安", "A"), ("安培", "A"), ("欧", "ohm"), ("欧姆", "ohm"), ("赫", "Hz")),
        *(("赫兹", "Hz"), ("帕", "Pa"), ("法", "F"), ("法拉", "F"), ("特", "T"), ("特斯拉", "T"), ("库仑", "C")),
    )
}
_UNITS = {
    **_SIZED,
    **_LENGTHS,
    **{f"平方{name}": f"{unit}^2" for name, unit in _LENGTHS.items()},
    **{f"立方{name}": f"{unit}^3" for name, unit in _LENGTHS.items()},
    "克": "g", "千克": "kg", "公斤": "kg", "毫克": "mg", "吨": "t", "升": "L", "毫升": "mL", "小时": "h", "时": "h",
    "分钟": "min", "分": "min", "秒": "s", "秒钟": "s", "天": "day", "日": "day", "周": "week", "星期": "week",
    "月": "month", "个月": "month", "年": "year", "度": "deg", "摄氏度": "celsius", "元": "yuan", "人民币": "yuan",
    "块钱": "yuan", "角": "jiao", "毛": "jiao", "美元": "usd",
    "美分": "cent", "欧元": "eur", "英镑": "gbp", "日元": "yen",
    "牛": "N", "牛顿": "N", "焦": "J", "焦耳": "J", "瓦": "W", "瓦特": "W", "千瓦": "kW", "伏": "V", "伏特": "V",
    "安": "A", "安培": "A", "欧": "ohm", "欧姆": "ohm", "赫兹": "Hz", "帕": "Pa", "帕斯卡": "Pa", "摩尔": "mol",
    "公顷": "ha", "弧度": "rad",
}  # fmt: skip
_CLASSIFIERS = frozenset("个名位只条张件本辆")  # they stand between a number and a noun, and count nothing themselves
# What says something else about the number than what is counted.
_OTHERWISE = re.compile(
    "[半多余几不非没无或和与及加减乘除负点又倒十之]|百(?!帕)|以[上下内外前后]|内$|^的|根号|方根|相反|[成折]$|次方|平方$|立方$|分数|亏|欠"
    "|零下|打$|对半"
)
_NUMBER_THEN = re.compile(rf"(?<=[0-9}}])\s?(?:\\text\s?\{{\s?)?([{HAN}/]*[{HAN}])\s?\}}?(?P<end>$|(?=[\s,;0-9\\]))")
_RULES = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"[。．]+$", ""),
        (r"[、，；]", ", "),
        (r"[（]", "("),
        *(
            (rf"(?<=[0-9A-Za-z}}])\s?(?:{names})\s?(?=[-0-9A-Za-z\\])", rf" {sign} ")
            for names, sign in (
                ("不小于|大于或?等于", r"\\ge"),
                ("不大于|小于或?等于", r"\\le"),
                ("不等于", r"\\ne"),
                ("大于", ">"),
                ("小于", "<"),
            )
        ),
        (r"[）]", ")"),
        (r"^(?:所以|因此|故|则)", ""),
        (r"^(?:最终|最后|正确|本题)?的?(?:答案|结果|答)(?:应该|应)?(?:是|为)?\s?[:\uff1a]?\s?", ""),
        (r"^(?:一共|总共|共)?(?:有|计|需要?)?(?=[0-9])", ""),
        (rf"(?:或者|或是|或)(?![{HAN}])", " or "),
        (rf"(?:以及|和|与|及)(?![{HAN}])", " and "),
        (r"^(?:大约|约为|约|大概|近似(?:于|为)?)(?:是|为)?\s?(?=[-0-9\\.$])", r"\\approx "),
        (r"零下(?=[0-9])|负(?=[0-9])", "-"),
        (r"第(?=[0-9])", ""),
        (rf"^(?:(?![不非没无未])[{HAN}]){{0,14}}?(?<![至最][多少])(?:是|为|等于)\s?(?=[-0-9\\.$(])", ""),
        *(
            (rf"(?<=[0-9}}])\s?{name}(?![克米瓦帕焦伏赫升牛安欧秒])", rf"\\cdot 10^{{{power}}}")
            for name, power in _SIZES.items()
        ),
    )
)

_ONE_OF = rf"([0-9]{{1,6}}(?:\.[0-9]{{1,6}})?|{_NUMERAL.pattern})"
_PARTS = re.compile(rf"{_ONE_OF}分之{_ONE_OF}")
_YEAR = "January February March April May June July August September October November December"
_MONTHS = _YEAR.split()
_HALVES = {"上午": " AM", "早上": " AM", "凌晨": " AM", "下午": " PM", "晚上": " PM"}
_MOMENT = re.compile(
    r"(?:(?P<year>[12][0-9]{3})\s?年\s?)?(?P<month>[0-9]{1,2})\s?月\s?(?P<day>[0-9]{1,2})\s?[日号]"
    r"|(?P<half>[上下]午|早上|晚上|凌晨)?\s?(?P<hour>[0-9]{1,2})\s?点\s?(?:(?P<minute>[0-9]{2})\s?分?|整|钟)?$"
)


def spell_out(text: str) -> str:
    """A text without its Chinese, where that can be said otherwise; any other noun behind a number in `\\text`."""
    if len(text) > MAX_CHINESE or _HAN.search(text) is None:
        return text
    text = _MOMENT.sub(_write_date_or_time, _PARTS.sub(_write_fraction, _replace_numeral(text.strip())))
    for pattern, by in _RULES:
        text = pattern.sub(by, text)
    return _NUMBER_THEN.sub(_write_unit, text).strip()


def _write_unit(match: re.Match[str]) -> str:
    noun = match[1]
    if _OTHERWISE.search(noun):
        return match.group()
    if noun in _CLASSIFIERS:
        return ""
    names = noun.replace("每", "/").split("/")
    return rf" \text{{ {'/'.join(_UNITS.get(name, name) for name in names)}}}"


def _write_date_or_time(match: re.Match[str]) -> str:
    """Dates and times as they are written in English."""
    year, month, day, half, hour, minute = match.group("year", "month", "day", "half", "hour", "minute")
    if hour:
        return f"{hour}:{minute or '00'}{_HALVES.get(half or '', '')}"
    name = _MONTHS[int(month) - 1] if 1 <= int(month) <= 12 else "month"
    return " ".join(part for part in (name, day, year) if part)


def _write_fraction(match: re.Match[str]) -> str:
    below, above = (_digits_of(part) for part in match.groups())
    if below is None or above is None:
        return match.group()
    return f"{above}%" if below == "100" else rf"\frac{{{above}}}{{{below}}}"


def _digits_of(text: str) -> str | None:
    if text[0].isascii():
        return text
    value = 100 if text == "百" else _parse_numeral(text)
    return None if value is None else str(value)


def _replace_numeral(text: str) -> str:
    """`三十五个` is `35个`; only where the text begins with the numeral and a unit or a counted noun follows."""
    match = _NUMERAL.match(text)
    if match is None:
        return text
    noun = text[match.end() :].strip("。 ")
    number = _parse_numeral(match.group())
    counted = noun in _UNITS or noun in ("", *"个只人名次种条本张件位道辆倍组")
    return f"{number}{noun}" if number is not None and counted else text


def _parse_numeral(text: str) -> int | None:
    total = digit = 0
    for letter in text:
        if letter in _PLACES:
            total += (digit or 1) * _PLACES[letter]
            digit = 0
        elif digit:
            return None
        else:
            digit = _DIGITS[letter]
    return total + digit
