"""What no configuration may hold, looked for before anything of it is merged, shown or written."""

from __future__ import annotations

import math
from typing import Any

from envs.services.secrets import check_text
from rlsys.errors import BadInput

MOST_BITS = 63  # of a whole number


def check_plain(source: str, values: Any, key: str = "") -> None:
    """Raises BadInput with the file and the full key, and never with the value: it may be somebody's secret.

    `${..}` is refused everywhere. Looked up, it would bring a variable of the environment, resolved, into the run
    directory, the tracker and the terminal. So is a number that is none, or that no machine counts to.
    """
    if isinstance(values, dict):
        for name, value in values.items():
            check_plain(source, value, f"{key}.{name}" if key else str(name))
    elif isinstance(values, list):
        for index, value in enumerate(values):
            check_plain(source, value, f"{key}.{index}")
    elif isinstance(values, float) and not math.isfinite(values):
        raise BadInput(f"{source}: {key}={values}: expected a finite number")
    elif isinstance(values, int) and values.bit_length() > MOST_BITS:
        raise BadInput(
            f"{source}: {key}: expected a whole number of at most {MOST_BITS} bits, found one of {values.bit_length()}"
        )
    elif isinstance(values, str):
        if "${" in values:
            raise BadInput(
                f"{source}: {key}: ${{..}} is not looked up: write the value, and of a key or token the name of its "
                "variable (key_env, token_env; docs/trust.md)"
            )
        try:
            check_text(key, values)
        except BadInput as error:
            raise BadInput(f"{source}: {error}") from None
