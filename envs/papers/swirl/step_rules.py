"""A judge of steps that needs no model: a made-up task says which call or answer is a right next step.

It looks at what SWiRL's judge looks at (arXiv 2504.04736, appendix A): the conversation so far and its last message. A
call is GOOD where it asks for the next thing that the results do not say yet, an answer where the results hold all that
it takes and say the same. What the model writes is no result, and the answer key is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from envs.papers.swirl.protocol import OVER_LIMIT, SWIRL, SWIRL_MATH, result_of
from envs.problems.knowledge import Question, question_of_task, sentence
from envs.protocols import Answer, Call, Malformed, Parsed, Protocol
from envs.rewards.answer import same_answer
from rlsys.errors import BadInput
from rlsys.types import Message, Task

_IDLE = {"the", "of", "who", "what", "which", "is"}  # words of a query that ask for nothing
_CALCULATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([-+*/])\s*(\d+(?:\.\d+)?)\s*")
MAX_CALCULATION = 64  # characters
Calculation = tuple[str, tuple[float, ...]]  # an operator and its numbers


def judge_by_rules(task: Task, conversation: Sequence[Message]) -> str:
    """A judgement of the last message, which ends in GOOD or BAD. `conversation` begins after the prompt.

    For made-up questions in the protocol swirl, and made-up word problems in swirl_math. Raises BadInput for others.
    """
    keys = {"relations": SWIRL, "steps": SWIRL_MATH}  # of what is made up; a file may have a field of that name too
    protocol = next((candidate for key, candidate in keys.items() if isinstance(task.record.get(key), list)), None)
    if protocol is None:
        raise BadInput(
            "rules judge tasks that are made up",
            where=f"task {task.task_id}",
            key="reward.judged_by",
            found="rules",
            expected="judge",
        )
    *before, action = conversation
    parsed = protocol.parse(action.content)
    if isinstance(parsed, Malformed):
        return "It is neither a call nor an answer. BAD"
    if isinstance(parsed, Call) and before and before[-1].content == OVER_LIMIT:
        return "No call is left. BAD"
    results = _calls_with_results(before, protocol)
    return (
        _judge_search(question_of_task(task), results, parsed)
        if protocol is SWIRL
        else _judge_calculation(task, results, parsed)
    )


def _calls_with_results(before: Sequence[Message], protocol: Protocol) -> list[tuple[str, str]]:
    """Each call with what the tool said: not the call itself, which stands in front of it as the model wrote it."""
    results: list[tuple[str, str]] = []
    call: Parsed = Malformed()
    for message in before:
        if message.role == "assistant":
            call = protocol.parse(message.content)
        elif isinstance(call, Call):
            result = result_of(call.text, message.content)
            if result is not None:
                results.append((call.text, result))
    return results


def _judge_search(question: Question, results: Sequence[tuple[str, str]], parsed: Call | Answer) -> str:
    lines = [line for _, result in results for line in result.split("\n")]
    name, missing = question.start, ""
    for relation in question.relations:
        value = _find_value(lines, relation, name)
        if value is None:
            missing = relation
            break
        name = value
    if isinstance(parsed, Answer):
        if missing:
            return f"The results do not say what the {missing} of {name} is. BAD"
        return _write_comparison(parsed.text.strip(" .").casefold() == name.casefold())
    words = set(re.findall(r"\w+", parsed.text.casefold())) - _IDLE
    return _write_next_step(missing and f"the {missing} of {name}", words == {missing.casefold(), name.casefold()})


def _find_value(lines: Sequence[str], relation: str, name: str) -> str | None:
    begin, _, end = sentence(relation, name, "\0").partition("\0")
    for line in lines:
        if line.startswith(begin) and line.endswith(end):
            return line[len(begin) : len(line) - len(end)]
    return None


def _judge_calculation(task: Task, results: Sequence[tuple[str, str]], parsed: Call | Answer) -> str:
    calculated = {_parse_calculation(call) for call, _ in results}
    steps = [(str(expression), int(result)) for expression, result in task.record["steps"]]
    missing = next((expression for expression, _ in steps if _parse_calculation(expression) not in calculated), "")
    if isinstance(parsed, Answer):
        if missing:
            return f"The results do not say what {missing} is. BAD"
        return _write_comparison(same_answer(parsed.text, [str(steps[-1][1])]))
    return _write_next_step(missing, _parse_calculation(parsed.text) == _parse_calculation(missing))


def _parse_calculation(text: str) -> Calculation | None:
    """`8*6.0` gives ("*", (6, 8)): where the order does not matter, there is one. None for anything else."""
    match = _CALCULATION.fullmatch(text) if len(text) <= MAX_CALCULATION else None
    if match is None:
        return None
    numbers = (float(match[1]), float(match[3]))
    return match[2], tuple(sorted(numbers)) if match[2] in "+*" else numbers


def _write_comparison(right: bool) -> str:
    return "It is what the results say. GOOD" if right else "The results say something else. BAD"


def _write_next_step(missing: str, is_asked: bool) -> str:
    """missing: what the results do not say yet; "" where they hold the answer."""
    if not missing:
        return "The results hold the answer already. BAD"
    return f"It asks for {missing}, which comes next. GOOD" if is_asked else f"It does not ask for {missing}. BAD"
