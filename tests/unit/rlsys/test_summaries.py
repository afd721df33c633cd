from rlsys.summaries import summarize_group
from rlsys.types import Reward, TokenStream
from tests.made import group, ticket, trajectory, turn


def test_a_summary_has_neither_tokens_nor_text() -> None:
    judged = Reward(
        value=1.0, parts={"a": 1.0}, streams=(TokenStream(name="s", values=(0.5, 0.5), discount=0.9),),
        judgements=("x" * 1000,),
    )  # fmt: skip
    (seen,) = summarize_group(
        group(ticket(0), trajectory(turn((1, 2), (3, 4), text="four", version=(1, 2)), reward=judged))
    )
    assert seen.reward == Reward(
        value=1.0, parts={"a": 1.0}, streams=(TokenStream(name="s", values=(1.0,), discount=0.9),)
    )
    assert (seen.num_sampled, seen.oldest_version, seen.versions) == (2, 1, {1, 2})
    assert (seen.turns.tolist(), seen.spans.tolist()) == ([[1, 2, 2]], [[0, 1, 1], [0, 2, 1]])
    assert "four" not in repr(seen)
