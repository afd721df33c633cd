"""The examples that configs/icrl/ ships: each is an episode of its protocol that earns the whole reward."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from envs.papers.icrl.reward import IcrlReward, IcrlRewardConfig
from envs.protocols import PROTOCOLS, Answer, Call
from envs.protocols.record import last_between
from envs.rewards.transcript import split_inline
from envs.tasks.prompts import SOLUTION, read_examples
from tests.makers.made import transcript
from tests.refused import refused

REWARDS = {"icrl": IcrlReward(IcrlRewardConfig()), "retool": IcrlReward(IcrlRewardConfig(tool="code"))}
EXAMPLES = [
    (protocol, solution.partition(SOLUTION)[2].strip())
    for protocol, name in (("icrl", "search"), ("retool", "code"))
    for solution in read_examples(f"configs/icrl/examples/{name}.txt")
]


def test_three_of_each_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [len(read_examples(f"configs/icrl/examples/{name}.txt")) for name in ("search", "code")] == [3, 3]
    with refused(where="gone.txt", says="cannot be read"):
        read_examples("gone.txt")
    (tmp_path / "configs/icrl/examples").mkdir(parents=True)
    (tmp_path / "configs/icrl/examples/code.txt").write_text("one's own comes first")
    with refused(says="begins with \"one's own"):
        read_examples("configs/icrl/examples/code.txt")


@pytest.mark.parametrize(("protocol", "solution"), EXAMPLES)
def test_an_example_is_an_episode_with_the_whole_reward(protocol: str, solution: str) -> None:
    rules = PROTOCOLS[protocol]
    messages = split_inline(solution, rules.inline)
    for call, reply in zip(messages[:-1:2], messages[1::2], strict=True):
        parsed = rules.parse(call.content.rstrip("\n"))
        assert isinstance(parsed, Call) and parsed.text
        assert rules.inline is not None
        result = last_between(reply.content, rules.inline.opening, rules.inline.closing)
        assert rules.reply(parsed.text, result or "").content.strip() == reply.content
    answer = rules.parse(messages[-1].content)
    assert isinstance(answer, Answer)
    gold = re.sub(r"\\boxed\{(.*)\}", r"\1", answer.text)
    assert REWARDS[protocol](transcript(*((m.role, m.content) for m in messages), golds=(gold,))).value == 1.0


@pytest.mark.parametrize("solution", [solution for protocol, solution in EXAMPLES if protocol == "retool"])
def test_a_program_prints_what_the_example_says(solution: str) -> None:
    messages = split_inline(solution, PROTOCOLS["retool"].inline)
    for call, reply in zip(messages[:-1:2], messages[1::2], strict=True):
        parsed, printed = PROTOCOLS["retool"].parse(call.content), io.StringIO()
        assert isinstance(parsed, Call)
        with contextlib.redirect_stdout(printed):
            exec(parsed.text, {})  # noqa: S102  (ours, not a model's)
        assert printed.getvalue().strip() == last_between(reply.content, "<interpreter>", "</interpreter>")
