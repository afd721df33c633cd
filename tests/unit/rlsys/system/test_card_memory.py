"""What nvidia-smi answers, recorded, and what is said of it."""

import os
import pickle
from subprocess import CompletedProcess

import pytest

from rlsys.errors import BadInput, RunFailed
from rlsys.system import card_memory
from rlsys.system.calls import reason
from rlsys.system.card_memory import Card, Holder, describe_held, naming_holders, read_cards, visible_cards
from rlsys.system.cards import VISIBLE

# 81559 - 551 = 81008 MiB, as CUDA counts them: 79.1 GiB.
GPUS = """0, GPU-aa, NVIDIA H100 80GB HBM3, 81559, 551, 62000, Disabled, 580.65.06, 0
1, GPU-bb, NVIDIA H100 80GB HBM3, 81559, 551, 900, [N/A], 580.65.06, [N/A]
2, GPU-cc, NVIDIA H100 80GB HBM3, 81559, 551, 40960, Enabled, 580.65.06, 3
"""
PROCESSES = """GPU-aa, 4321, 61000, /usr/bin/python3.11
GPU-aa, 77, 512, /opt/a, b/jax
GPU-bb, 77, 512, /opt/a, b/jax
"""
CARDS = read_cards(GPUS, PROCESSES)


def test_cards_and_holders_are_read() -> None:
    python, jax = Holder(4321, "python3.11", 61000), Holder(77, "jax", 512)
    name, release = "NVIDIA H100 80GB HBM3", "580.65.06"
    assert CARDS[0] == Card("0", "GPU-aa", name, 81008, 62000, (python, jax), reserved=551, driver=release)
    assert [card.ecc_errors for card in CARDS] == [0, 0, 3]
    assert CARDS[1].holders == (jax,) and CARDS[2].holders == ()
    assert [card.parted for card in CARDS] == [False, False, True]


def test_what_an_old_driver_or_a_container_does_not_say() -> None:
    said = "0, GPU-aa, A100, 40960, [N/A], 30720, [N/A], 470.1, 0\nNo devices\n"
    (card,) = read_cards(said, "GPU-aa, 12, [N/A], [Not Found]\n")
    assert card == Card("0", "GPU-aa", "A100", 40960, 30720, (Holder(12, "[Not Found]", None),), driver="470.1")
    (line,) = describe_held([card], lambda pid: False)
    assert "30.0 of 40.0 GiB" in line and "pid 12" in line
    assert read_cards("", "") == []
    (shared,) = read_cards("0, GPU-aa, GB10, [N/A], [N/A], [N/A], [N/A], 580.65.06, [N/A]\n", "")
    assert (shared.name, shared.mib) == ("GB10", 0) and describe_held([shared], lambda pid: False) == []


def test_a_driver_that_does_not_know_a_field_is_asked_for_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(query: str, form: str, deadline_s: float) -> CompletedProcess[str]:
        knows = query == card_memory.FEWER
        return CompletedProcess((), 0 if knows else 2, "0, GPU-aa, A100, 40960, 470.1\n" if knows else "", "")

    monkeypatch.setattr(card_memory, "run_smi", answer)
    assert card_memory.ask_cards() == [Card("0", "GPU-aa", "A100", 40960, 0, driver="470.1")]


def test_a_card_that_others_fill_is_named_with_who_holds_how_much() -> None:
    first, third = describe_held(CARDS, lambda pid: False)  # 900 of 81008 MiB of the second are in nobody's way
    assert "GPU 0" in first and "60.5 of 79.1 GiB" in first  # 62000 / 1024
    assert "python3.11 (pid 4321) 59.6 GiB" in first and "jax (pid 77) 0.5 GiB" in first
    assert "GPU 2" in third and "40.0 of 79.1 GiB" in third and "does not name" in third
    assert not any("\n" in line for line in (first, third))


def test_what_the_run_itself_holds_is_not_in_its_way() -> None:
    (line,) = describe_held(CARDS[:2], lambda pid: pid == 77)
    assert "60.0 of 79.1 GiB" in line and "jax" not in line  # 62000 - 512 = 61488 MiB
    assert describe_held(CARDS[:2], lambda pid: pid == 4321) == []  # 1000 of 81008 MiB are left


@pytest.mark.parametrize(
    "named, indices",
    [(None, "012"), ("2", "2"), ("GPU-bb,0", "01"), ("GPU-b", "1"), ("GPU-x", ""), ("MIG-1", ""), ("", "")],
)
def test_the_cards_of_this_process(named: str | None, indices: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if named is None:
        monkeypatch.delenv(VISIBLE, raising=False)
    else:
        monkeypatch.setenv(VISIBLE, named)
    assert "".join(card.index for card in visible_cards(CARDS)) == indices


class AcceleratorError(RuntimeError):
    """By its name: torch is not asked."""


def cards(*pids: int) -> list[Card]:
    """One card, of which the tool names these processes with 20000 MiB each, and others hold 30000 MiB."""
    holders = tuple(Holder(pid, "python3.11", 20000) for pid in pids)
    return [Card("0", "GPU-aa", "NVIDIA H100 80GB HBM3", 81008, 20000 * len(pids) + 30000, holders)]


OURS, ANOTHER = os.getpid(), os.getppid()


def test_an_error_of_the_card_says_who_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "0")
    with pytest.raises(RunFailed) as caught, naming_holders(ask=lambda: [*cards(OURS, ANOTHER), CARDS[2]]):
        raise AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be reported later")
    assert "AcceleratorError: CUDA error: out of memory" in str(caught.value)
    assert f"pid {ANOTHER}" in str(caught.value) and "48.8 of 79.1 GiB" in str(caught.value)  # 50000 / 1024
    assert "GPU 2" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("pids", [(), (2**22 + 1,)])  # above what Linux gives
def test_where_the_tool_names_none_of_our_processes_nobody_is_blamed(pids: tuple[int, ...]) -> None:
    """In a container with its own numbers of processes all memory looks like others', our own too."""
    with pytest.raises(AcceleratorError) as caught, naming_holders(ask=lambda: cards(*pids)):
        raise AcceleratorError("CUDA error: out of memory")
    with pytest.raises(RuntimeError) as died, naming_holders(any_error=True, ask=lambda: cards(*pids)):
        raise RuntimeError("the engine's process has died")
    assert reason(caught.value) == "AcceleratorError: CUDA error: out of memory"
    assert reason(died.value) == "RuntimeError: the engine's process has died"


def test_the_start_of_an_engine_keeps_its_error_with_the_holders_as_a_note() -> None:
    with pytest.raises(RuntimeError) as caught, naming_holders(any_error=True, ask=lambda: cards(ANOTHER)):
        raise RuntimeError("the engine's process has died")
    arrived = pickle.loads(pickle.dumps(caught.value))  # as from an actor
    assert "process has died; " in reason(arrived) and f"pid {ANOTHER}" in reason(arrived)


@pytest.mark.parametrize("refusal", [BadInput("no such model"), ValueError("a key"), NotImplementedError("a model")])
def test_what_is_refused_has_nothing_to_do_with_who_holds_a_card(refusal: Exception) -> None:
    with pytest.raises(type(refusal)) as caught, naming_holders(any_error=True, ask=lambda: cards(ANOTHER)):
        raise refusal
    assert caught.value is refusal and not hasattr(refusal, "__notes__")


def test_any_other_error_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="no memory in it"), naming_holders(ask=lambda: cards(OURS, ANOTHER)):
        raise RuntimeError("no memory in it")
    with pytest.raises(AcceleratorError), naming_holders(ask=lambda: CARDS[1:2]):
        raise AcceleratorError("nobody else holds this one")
    with naming_holders(ask=lambda: pytest.fail("asked for nothing")):
        pass
