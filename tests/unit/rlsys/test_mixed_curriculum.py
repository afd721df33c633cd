"""Each environment has its share of the groups, draws by its own curriculum, and continues where it was."""

import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rlsys.config.curriculum import CurriculumConfig
from rlsys.curriculum import Curriculum, make_curriculum
from rlsys.mixed_curriculum import MixedCurriculum, Turns
from rlsys.types import Task

CONFIGS = {"sums": CurriculumConfig(), "graphs": CurriculumConfig(name="difficulty")}
WEIGHTS = {"sums": 1.0, "graphs": 2.0}


def level_of(task: Task) -> str:
    return str(task.record["hops"])


def part(name: str, state: Any = None) -> Curriculum:
    tasks = [Task(task_id=f"{name}/{n}", question="?", record={"hops": n % 2}) for n in range(6)]
    return make_curriculum(CONFIGS[name], tasks, level_of, seed=5, state=state)


def mixed(state: dict[str, Any] | None = None) -> MixedCurriculum:
    return MixedCurriculum({name: part(name, (state or {}).get(name)) for name in CONFIGS}, WEIGHTS)


def test_turns_by_hand() -> None:
    """2 to 1: credits of g, s after each draw: -1/3, 1/3; 1/3, -1/3; 0, 0."""
    turns = Turns({"s": 1, "g": 2})
    assert [turns.of(sequence) for sequence in range(6)] == [("g", 0), ("s", 0), ("g", 1), ("g", 2), ("s", 1), ("g", 3)]
    assert [turns.of(sequence) for sequence in (4, 1)] == [("s", 1), ("s", 0)]


@given(st.dictionaries(st.sampled_from("abcd"), st.floats(0.01, 100), min_size=1), st.integers(1, 200))
def test_each_has_its_share_to_within_one_and_the_order_of_the_list_changes_nothing(
    weights: dict[str, float], draws: int
) -> None:
    turns, turned = Turns(weights), Turns(dict(reversed(weights.items())))
    dealt = [turns.of(sequence) for sequence in range(draws)]
    assert dealt == [turned.of(sequence) for sequence in range(draws)]
    counts = Counter(name for name, _ in dealt)
    for name, weight in weights.items():
        assert abs(counts[name] - draws * weight / sum(weights.values())) <= 1 + 1e-9
        assert [own for label, own in dealt if label == name] == list(range(counts[name]))


def test_an_environment_draws_as_it_would_alone() -> None:
    whole, alone = mixed(), {name: part(name) for name in CONFIGS}
    turns = Turns(WEIGHTS)
    for sequence in range(40):
        name, own = turns.of(sequence)
        assert whole.draw(sequence) == alone[name].draw(own)
        whole.record_group(sequence, sequence % 3 == 0, 0.5)
        alone[name].record_group(own, sequence % 3 == 0, 0.5)
    assert whole.row() == {f"by_env/graphs/{key}": value for key, value in alone["graphs"].row().items()}


def test_a_resumed_one_continues_with_the_same_draws() -> None:
    through = mixed()
    for sequence in range(20):
        through.draw(sequence)
        if sequence not in (7, 16, 17):  # they are open when it is killed
            through.record_group(sequence, sequence % 2 == 0, 0.25)
    resumed = mixed(json.loads(json.dumps(through.state())))
    for sequence in (7, 16, 17, *range(20, 60)):
        assert resumed.draw(sequence) == through.draw(sequence)
        for curriculum in (resumed, through):
            curriculum.record_group(sequence, sequence % 2 == 0, 0.25)
    assert resumed.state() == through.state()
