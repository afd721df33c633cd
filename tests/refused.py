"""`with refused("learner.lr", found=0.0):` what the block must refuse, however the line about it is worded."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rlsys.errors import BadInput


@contextmanager
def refused(
    key: str | None = None, *, found: object = ..., where: str = "", expected: str = "", says: str = ""
) -> Iterator[pytest.ExceptionInfo[BadInput]]:
    """The block raises BadInput about `key` and its value `found`, and each other text is part of what the error has.

    says: of the whole line, for what has no key.
    """
    with pytest.raises(BadInput) as caught:
        yield caught
    error = caught.value
    assert key is None or error.key == key, error
    assert found is ... or error.found == found, error
    assert where in error.where, error
    assert expected in error.expected, error
    assert says in str(error), error
