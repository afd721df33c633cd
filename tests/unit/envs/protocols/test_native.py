"""Every family reads what it writes, answers what is broken, and lets no text raise."""

import json
import string
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.protocols.families.family import MAX_CALLS, Family
from envs.protocols.families.tagged import HERMES
from envs.protocols.native import FAMILIES, family_of, read_calls
from rlsys.types import ToolCall
from tests.fakes.hostile_texts import HOSTILE

NAMES = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=64)
# Texts that no format of a message can hold as they are: marks of the formats themselves stay in JSON, not in XML.
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
PYTHONIC = FAMILIES["pythonic"]
JSON_FAMILIES = [family for family in FAMILIES.values() if family.typed and family is not PYTHONIC]
WORDS = st.from_regex("[A-Za-z_][A-Za-z0-9_-]{0,20}", fullmatch=True)
BITS = [
    "<tool_call>",
    "</tool_call>",
    '{"name": "f"',
    ', "arguments": {"a": 1}}',
    "}",
    "[TOOL_CALLS]",
    "[",
    "<function=f>",
]
BITS += [
    "<parameter=a>",
    "</parameter>",
    "</function>",
    "<|python_tag|>",
    ";",
    "\\ud800",
    "<think>",
    "</think>",
    "NaN",
    '"',
    "[f(",
    "a='x'",
    ", g(b={'c': (1, ",
    ")]",
    '{"name": "f", "parameters": {}}',
]


def calls(*given: tuple[str, dict[str, Any]]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(name=name, arguments=arguments) for name, arguments in given)


@settings(max_examples=25, deadline=None)
@given(made=st.lists(st.tuples(NAMES, st.dictionaries(st.text(), VALUES, max_size=3)), min_size=1, max_size=3))
def test_a_json_family_reads_the_calls_that_it_writes(made: list[tuple[str, dict[str, Any]]]) -> None:
    for family in JSON_FAMILIES:
        written = family.write("", calls(*made))
        for text in (written, f"<think>\nperhaps {written} then\n</think>\n\n{written}"):
            assert read_calls(family, text) == calls(*made), (family.name, text)


@settings(max_examples=50, deadline=None)
@given(made=st.lists(st.tuples(WORDS, st.dictionaries(WORDS, VALUES, max_size=3)), min_size=1, max_size=3))
def test_python_calls_are_read_as_they_are_written(made: list[tuple[str, dict[str, Any]]]) -> None:
    written = PYTHONIC.write("", calls(*made))
    for text in (written, f"<think>\nperhaps {written} then\n</think>\n\n{written}"):
        assert read_calls(PYTHONIC, text) == calls(*made), text
        assert read_calls(FAMILIES["llama3"], text) == calls(*made), text


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("[f()]", {}),
        ('[f(city="Rome", x=1)]', {"city": "Rome", "x": 1}),
        ("[ f( a = 'it\\'s', b = -1.5e3 , ) , ]", {"a": "it's", "b": -1500.0}),
        ("[f(a=None, b=true, c=(1, 2), d={'k': [False]})]", {"a": None, "b": True, "c": [1, 2], "d": {"k": [False]}}),
        ("<|python_start|>[f(a=1)]<|python_end|>", {"a": 1}),
        ("[f(a='two\nlines', b='\\n\\x41\\d')]", {"a": "two\nlines", "b": "\nA\\d"}),
        ("[f(a='[g(b=1)]')]", {"a": "[g(b=1)]"}),
    ],
)
def test_forms_of_a_python_call(text: str, arguments: dict[str, Any]) -> None:
    for family in (PYTHONIC, FAMILIES["llama3"]):
        assert read_calls(family, text) == calls(("f", arguments))


@pytest.mark.parametrize(
    "text",
    [
        "To look it up, write [f(a=1)] first.",
        "Let me look: [f(a=1)]",
        "[1, 2, 3]",
        "[f(x), g(x)]",
        "[Rome](https://rome.example)",
        "[f]",
        "[]",
        "f(a=1)",
    ],
)
def test_lists_and_mentions_are_no_python_calls(text: str) -> None:
    for family in (PYTHONIC, FAMILIES["llama3"]):
        assert read_calls(family, text) == ()


ONE = '{"name": "f", "parameters": {"a": 1}}'


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (f"I will look. {ONE}", 1),
        (f"I will look.\n\n{ONE}; {ONE}\n", 2),
        (f'Of {{1, 2}} and {{"name": f}} I take the first: {ONE}', 1),
        (f"The call is {ONE}, and I do not make it.", 0),
        (f"Write `{ONE}`", 0),
        (f'I know: {{"calls": [{ONE}]}}', 0),
        ('The capital: {"name": "Rome"}', 0),
        ('I will look. {"name": "f", "parameters": {"a": 1}', 0),
        ('I will look. {"name": "f", "parameters": 1}', 0),
        (f"I know {{1}}; {ONE}; and more", 0),
    ],
)
def test_whole_calls_behind_a_sentence_are_read(text: str, number: int) -> None:
    assert read_calls(FAMILIES["llama3"], text) == calls(("f", {"a": 1})) * number


@pytest.mark.parametrize(
    "piece", [ONE, ONE[:-1], '{"name":', "[f(a=1)]", "[f(a='", "[f(a=[", "[f(a={'k':", "{ ", "[ ", "\\"]
)
@pytest.mark.parametrize("family", [PYTHONIC, FAMILIES["llama3"]], ids=lambda family: family.name)
def test_twice_the_text_takes_at_most_twice_the_steps(family: Family, piece: str) -> None:
    def steps(times: int) -> int:
        counted = 0

        def count(*_: Any) -> None:
            nonlocal counted
            counted += 1

        sys.setprofile(count)
        try:
            for before in ("", "So: ", "[f(a="):
                read_calls(family, f"{before}{piece * times}</think>{piece * times}")
        finally:
            sys.setprofile(None)
        return counted

    assert steps(400) <= 2 * steps(200) + 100


@pytest.mark.parametrize("begun", ["", '"'])
def test_the_template_of_a_python_family_is_found_with_texts_in_quotes_and_without(begun: str) -> None:
    call = ToolCall(name="probe_tool", arguments={"probe_key": "probe value"})
    assert family_of(f"[probe_tool(probe_key={begun}probe value{begun})]\n", call) is PYTHONIC


LINE = st.text(st.characters(codec="utf-8", exclude_characters="<>"), max_size=20).map(lambda text: text.strip("\n"))


@settings(max_examples=25, deadline=None)
@given(made=st.lists(st.tuples(NAMES, st.dictionaries(NAMES, LINE, max_size=3)), min_size=1, max_size=3))
def test_the_family_without_types_reads_texts_as_the_schema_says(made: list[tuple[str, dict[str, str]]]) -> None:
    family = FAMILIES["qwen3_coder"]
    schemas = [
        {"function": {"name": name, "parameters": {"properties": {key: {"type": "string"} for key in arguments}}}}
        for name, arguments in {name: arguments for name, arguments in reversed(made)}.items()
    ]
    for name, arguments in made:
        (call,) = read_calls(family, family.write("", calls((name, arguments))), schemas)
        assert call.name == name and all(
            str(call.arguments[key]).strip() == arguments[key].strip() for key in arguments
        )
    numbers = family.write("", calls(("f", {"a": 5, "b": "5", "c": [1, "x"]})))
    properties = {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "array"}}
    (call,) = read_calls(family, numbers, [{"function": {"name": "f", "parameters": {"properties": properties}}}])
    assert call.arguments == {"a": 5, "b": "5", "c": [1, "x"]}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "01", "01"),
        ({"type": ["string", "null"]}, "12", "12"),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": "string"}, "null", "null"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "12", "12"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
        ({"oneOf": [{"type": "integer"}, {"anyOf": [{"type": "string"}]}]}, "12", "12"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": ["1", "2", None]}, "null", None),
        ({"enum": ["1", 2]}, "2", 2),
        ({"enum": ["1", "2"]}, "3", "3"),
        ({"enum": [1, 2]}, "3", 3),
        ({"type": ["integer", "null"]}, "12", 12),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "12", 12),
        ({"anyOf": 5, "type": 5, "enum": 5}, "12", 12),
        ({}, "12", 12),
    ],
)
def test_a_text_stays_one_wherever_the_schema_takes_a_text(schema: dict[str, Any], text: str, value: Any) -> None:
    family = FAMILIES["qwen3_coder"]
    output = family.write("", calls(("f", {"a": text})))
    (call,) = read_calls(family, output, [{"function": {"name": "f", "parameters": {"properties": {"a": schema}}}}])
    assert call.arguments == {"a": value} and type(call.arguments["a"]) is type(value)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_tag_that_closes_a_thought_is_text_inside_of_a_call(family: Family) -> None:
    expected = calls(("f", {"a": "what is </think>?"}), ("g", {"b": "</think></think>"}))
    written = family.write("", expected)
    for text in (written, f"perhaps {written} then\n</think>\n\n{written}", f"<think>{written}</think>{written}"):
        assert read_calls(family, text) == expected, text
    assert read_calls(family, f"<think>perhaps {written} then</think>It is 5.") == ()
    broken = written[: written.index("?")]  # of no call: it closes the thought
    assert read_calls(family, f"<think>perhaps {broken}\n{written}") == expected


@pytest.mark.parametrize("begun", ["<think>", ""])
def test_a_mention_of_the_mark_in_a_thought_hides_no_mistral_call(begun: str) -> None:
    family, expected = FAMILIES["mistral"], calls(("f", {"a": 1}))
    for thought in ("use [TOOL_CALLS] now", "[TOOL_CALLS]"):
        assert read_calls(family, f"{begun}{thought}</think>{family.write('', expected)}") == expected


def test_the_other_form_of_a_mistral_call_may_hold_one_too() -> None:
    (call,) = read_calls(FAMILIES["mistral"], '[TOOL_CALLS]f[ARGS]{"a": "</think>"}')
    assert (call.name, call.arguments) == ("f", {"a": "</think>"})


@settings(max_examples=60, deadline=None)
@given(text=st.text() | st.lists(st.sampled_from(BITS) | st.text(max_size=4), max_size=12).map("".join))
def test_any_text_is_read_and_every_call_can_be_carried_out_or_says_why_not(text: str) -> None:
    for family in FAMILIES.values():
        for call in read_calls(family, text):
            assert call.problem or (call.name and json.dumps(call.arguments, ensure_ascii=False).encode())


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_read(text: str) -> None:
    for family in FAMILIES.values():
        for whole in (text, f"<tool_call>{text}", f"[TOOL_CALLS]{text}", f"{{{text}"):
            read_calls(family, whole)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_long_texts_are_read_in_one_pass(family: Family) -> None:
    opening = family.write("", calls(("f", {"a": "x"})))
    for piece in (
        opening,
        opening[: len(opening) // 2],
        '{"a":',
        "[",
        "<tool_call>",
        "<tool_call><function=f><parameter=a>",
        f"{opening}</think>",
        f"{opening[:-9]}</think>",
        '<tool_call>["',
    ):
        assert len(read_calls(family, piece * (200_000 // len(piece)))) <= MAX_CALLS


@pytest.mark.parametrize(
    ("family", "text", "problem"),
    [
        ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}\n</tool_call>', "not valid JSON"),
        ("hermes", "<tool_call>\nf(1)\n</tool_call>", "not valid JSON"),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>', 'no "name"'),
        ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', "no JSON object"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>', "not valid JSON"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "\\ud800"}}</tool_call>', "not valid JSON"),
        ("hermes", '<tool_call>{"name": "f"} and more</tool_call>', "text stands between"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1e999}}</tool_call>', "not valid JSON"),
        ("hermes", '<tool_call>{"name": "f", "args": {"a": 1}}</tool_call>', "'args'"),
        ("hermes", '<tool_call>{"name": "f", "a": 1}</tool_call>', 'no "arguments"'),
        ("llama3", '{"name": "f", "input": {"a": 1}}', 'no "parameters"'),
        ("mistral", '[TOOL_CALLS][{"name": "f", "kwargs": {}}]', 'no "arguments"'),
        ("hermes", "<tool_call>[1]</tool_call>", 'no "name"'),
        ("hermes", "<tool_call>" + "[" * 100_000, "not valid JSON"),
        ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</function>\n</tool_call>", "is not <function"),
        (
            "qwen3_coder",
            "<tool_call>\n<function=f>\n<parameter=a>\n1\n<parameter=b>\n2\n</parameter>\n</function>\n</tool_call>",
            "is not <function",
        ),
        ("mistral", '[TOOL_CALLS]{"name": 1}', 'no "name"'),
        ("mistral", "[TOOL_CALLS][]", "not valid JSON"),
        ("llama3", '{"name": "f", "parameters": {}} I think', "text stands behind"),
        ("llama3", "{name: f}", "not valid JSON"),
        ("pythonic", "[f(a=b)]", "is not [NAME"),
        ("pythonic", "[f(a=1), 2]", "is not [NAME"),
        ("pythonic", "[f(a=1, 2)]", "is not [NAME"),
        ("pythonic", "[f(a=1)", "is not [NAME"),
        ("pythonic", "[f(a=1e999)]", "is not [NAME"),
        ("pythonic", "[f(a='\\ud800')]", "is not [NAME"),
        ("pythonic", "[f(a=" + "[" * 100_000, "is not [NAME"),
        ("pythonic", "[f(a=1)] I think", "text stands behind"),
    ],
)
def test_what_is_no_call_says_why(family: str, text: str, problem: str) -> None:
    (call,) = read_calls(FAMILIES[family], text)
    assert problem in call.problem


@pytest.mark.parametrize(("written", "read"), [("abc123XYZ", "abc123XYZ"), ("1", ""), ("x" * 5000, ""), (5, "")])
def test_an_id_is_kept_where_every_template_takes_it(written: object, read: str) -> None:
    payload = json.dumps([{"name": "search", "arguments": {}, "id": written}])
    assert [call.call_id for call in read_calls(FAMILIES["mistral"], f"[TOOL_CALLS]{payload}")] == [read]


def test_several_calls_of_which_one_is_broken() -> None:
    good = HERMES.write("", calls(("f", {"a": 1})))
    read = read_calls(HERMES, f"I look.\n{good}\n<tool_call>\noops\n</tool_call>\n{good}")
    assert [bool(call.problem) for call in read] == [False, True, False]


def test_answers_and_thoughts_hold_no_calls() -> None:
    call = HERMES.write("", calls(("f", {})))
    for text in ("It is 5.", f"<think>{call}", f"<think>{call}</think>It is 5.", "a {b} c"):
        for family in FAMILIES.values():
            assert read_calls(family, text) == ()


def test_other_spellings_of_a_call() -> None:
    expected = calls(("f", {"a": 1}))
    assert (
        read_calls(HERMES, '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}') == expected
    )  # a text; never closed
    assert read_calls(FAMILIES["mistral"], '[TOOL_CALLS]f{"a": 1}') == expected
    assert read_calls(FAMILIES["mistral"], 'So:[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]f[ARGS]{"a": 1}') == expected * 2
    assert read_calls(FAMILIES["llama3"], '<|python_tag|>{"name": "f", "parameters": {"a": 1}}') == expected


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_family_is_found_by_what_it_writes(family: Family) -> None:
    call = ToolCall(name="probe_tool", arguments={"probe_key": "probe value"})
    assert family_of(family.write("", (call,)), call) is family
    assert family_of("probe_tool(probe_key='probe value')", call) is None


@pytest.mark.parametrize(
    ("family", "text", "arguments"),
    [
        ("mistral", '[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{"a": 1}', {"a": 1}),
        ("mistral", '[TOOL_CALLS]f[CALL_ID]abc123def[ARGS] {"a": "[TOOL_CALLS]"}', {"a": "[TOOL_CALLS]"}),
        ("mistral", '[TOOL_CALLS]f{"a": "[TOOL_CALLS][{"}', {"a": "[TOOL_CALLS][{"}),
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"a": "[TOOL_CALLS]"}}]', {"a": "[TOOL_CALLS]"}),
        ("mistral", '[THINK][TOOL_CALLS]g{}[/THINK][TOOL_CALLS]f{"a": "[/THINK]"}', {"a": "[/THINK]"}),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}}</tool_call><think>later</think>', {}),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}}</tool_call>\n</think>', {}),
        ("qwen3_coder", "So:\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>", {"a": 1}),
        ("qwen3_coder", "<function=f></function>\n</tool_call>", {}),
        ("mistral", '[TOOL_CALLS]f{"a": 1}[THINK]later[/THINK]', {"a": 1}),
    ],
)
def test_one_call_of_other_versions(family: str, text: str, arguments: dict[str, Any]) -> None:
    (call,) = read_calls(FAMILIES[family], text)
    assert (call.name, call.arguments, call.problem) == ("f", arguments, "")


def test_a_call_in_a_thought_of_magistral_is_none() -> None:
    assert read_calls(FAMILIES["mistral"], "[THINK][TOOL_CALLS][..][/THINK]ok") == ()


def test_ids_of_mistral_are_kept_and_its_newest_form_names_the_family() -> None:
    text = '[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{"a": 1}'
    (call,) = read_calls(FAMILIES["mistral"], text)
    assert call.call_id == "abc123def"
    assert family_of(text, call) is FAMILIES["mistral"]


def test_values_that_python_writes_are_typed_by_the_schema() -> None:
    properties = {"b": {"type": "boolean"}, "t": {"type": "string"}}
    schema = {"function": {"name": "f", "parameters": {"properties": properties}}}
    text = "<tool_call><function=f><parameter=b>True</parameter><parameter=t>True</parameter></function></tool_call>"
    (call,) = read_calls(FAMILIES["qwen3_coder"], text, [schema])
    assert call.arguments == {"b": True, "t": "True"}


@pytest.mark.parametrize("text", ["{1, 2}", "{x | x > 3}", '{"answer": 5}', "{}"])
def test_an_object_that_is_no_call_is_an_answer(text: str) -> None:
    assert read_calls(FAMILIES["llama3"], text) == ()


def test_a_mention_of_a_function_is_no_call() -> None:
    assert read_calls(FAMILIES["qwen3_coder"], "Write <function=NAME> and then <function=f><parameter=") == ()


def test_a_list_of_objects_is_no_call_where_no_tool_has_the_name() -> None:
    schemas = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    assert read_calls(FAMILIES["llama3"], "[Point(x=1, y=2)]", schemas) == ()
    assert [call.name for call in read_calls(FAMILIES["llama3"], "[f(x=1)]", schemas)] == ["f"]
    assert read_calls(PYTHONIC, "[Point(x=1, y=2)] are the corners.", schemas) == ()
    assert [call.name for call in read_calls(PYTHONIC, "[g(x=1)]", schemas)] == [
        "g"
    ]  # which is told that there is none
    assert read_calls(PYTHONIC, "[f(x=1) = 2]", schemas)[0].problem
