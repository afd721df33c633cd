"""The pages that docs/make_reference.py makes are what it would make today."""

import pytest

from docs.make_reference import MAKERS, PAGES, describe


@pytest.mark.parametrize("name", MAKERS)
def test_a_generated_page_is_current(name: str) -> None:
    assert (PAGES / name).read_text() == MAKERS[name](), "run `python docs/make_reference.py`"


class Lamp:
    """Gives light.

    Lamp(watts=5)
    """

    watts: int = 5  # of electric power
    """How bright it is."""

    def switch(self, on: bool) -> None:
        """On or off."""
        self._hidden()

    def _hidden(self) -> None: ...


def test_a_class_is_shown_without_bodies_and_private_members() -> None:
    page = describe(Lamp)
    assert "Gives light." in page and "```python\nLamp(watts=5)\n```" in page
    code = page.split("```python\n")[-1]
    assert code == (
        "class Lamp:\n    watts: int = 5  # of electric power\n    # How bright it is.\n"
        "    def switch(self, on: bool) -> None:\n        # On or off.\n```\n"
    )
