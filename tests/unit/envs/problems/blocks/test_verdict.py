"""envs.problems.blocks.verdict: the wordings of a verdict, and those that are none."""

import pytest

from envs.problems.blocks.verdict import read_verdict


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("The above plan is valid.\n", True),
        ("The above plan is invalid.The following action at step 2 has an unmet precondition:", False),
        ("VALID", True),
        ("**Invalid**", False),
        ("Is it valid or invalid? Step 2 fails, so it is not valid.", False),
        ("The above plan is not a valid plan.", False),
        ("The plan isn't valid.", False),
        ("So it is not invalid.", True),
        ("It looks invalid, but it is valid", True),
        ("The plan is valid.\n[STATEMENT]\n... is invalid", True),
        ("The plan cannot be valid.", False),
        ("It can't be considered a valid plan", False),
        ("This is no **valid** plan.", False),
        ("The plan is never actually valid", False),
        ("neither valid nor executable", False),
        ("I don't think the plan is valid.", False),
        ("I believe that the plan is valid.", True),
        ("The plan is no longer valid", False),
        ("It fails to be valid", False),
        ("It is far from valid", False),
        ("hardly valid", False),
        ("Nothing about it is valid", False),
        ("It may not be valid", None),
        ("Valid: no", False),
        ("Is the plan valid? **No**", False),
        ("Valid? Yes.", True),
        ("Is the plan valid? No step fails.", True),
        ("I found no error, so the plan is valid", True),
        ("No step fails: valid", True),
        ("The above plan is invalid. It would be valid if the hand were empty.", False),
        ("It might be valid", None),
        ("I check whether the plan is valid", None),
        ("The plan is valid or invalid", None),
        ("VALID/INVALID", None),
        ("valid or not", None),
        ("The plan works", None),  # a verdict is one of the two words
        ("validity is invalidated", None),
        ("", None),
    ],
)
def test_the_last_verdict_counts(text: str, said: bool | None) -> None:
    read = read_verdict(text)
    assert (None if read is None else read[0]) == said
    assert read is None or "valid" in text[slice(*read[1])].lower()
