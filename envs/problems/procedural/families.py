"""Which families of reasoning-gym 0.1.25 are offered, and why the others are not.

A family is offered where its generator makes a problem in well under a second, its scorer gives 1 to its own answer
after both have been through JSON, and less to what is wrong. `tests/e2e/test_reasoning_gym.py` tries all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rlsys.errors import BadInput, nearest


@dataclass(frozen=True, slots=True)
class Family:
    compares: bool = False  # its scorer is `compare` below and no more: it needs no sandbox
    grammar: re.Pattern[str] | None = None  # what its scorer may be given; None: any text, which it does not execute
    most: float = 1.0  # share of the problems that may have one answer


# Scorers that execute an answer (`eval`, sympy's `parse_expr`) get no text with names other than those of functions and
# variables of mathematics, and none with an attribute or a text inside: nothing in it can be called that does anything.
MATRIX = re.compile(r"[-0-9,\[\]\s]*")
LETTER = r"(?:'[A-Z]'|\"[A-Z]\")"
LETTERS = re.compile(rf"[A-Z\s]*|\[\s*(?:{LETTER}(?:\s*,\s*{LETTER})*\s*)?\]")
COMPLEX = re.compile(r"[-+0-9.ij\s]*")  # its scorer takes nan for the right number
BOARD = re.compile(r"[Q_\s]*")
ARITHMETIC = re.compile(r"(?!.*(?:\*\s*\*|/\s*/))[-+*/()0-9\s]*", re.DOTALL)  # + - * / are asked for, no powers
FUNCTIONS = "exp|log|ln|sqrt|sin|cos|tan|sec|csc|cot|asin|acos|atan|sinh|cosh|tanh|Abs|pi|C|E"
NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?![0-9A-Za-z_.])"
ALGEBRA = re.compile(rf"(?:(?:{FUNCTIONS}|[a-zA-Z])(?![A-Za-z_])|{NUMBER}|[-+*/^(),\s])*")

GRAMMARS: Mapping[str, re.Pattern[str]] = {
    "binary_matrix": MATRIX,
    "complex_arithmetic": COMPLEX,
    "countdown": ARITHMETIC,
    "intermediate_integration": ALGEBRA,
    "n_queens": BOARD,
    "polynomial_multiplication": ALGEBRA,
    "simple_integration": ALGEBRA,
    "spiral_matrix": MATRIX,
    "string_insertion": LETTERS,
}

LEFT_OUT: Mapping[str, str] = {
    "arc_agi": "its scorer compares tuples with the lists that JSON makes of them, and takes no answer",
    "coin_flip": "its scorer accepts 0 for every problem",
    "composite": "it mixes other families, as env.families does",
    "game_of_life_halting": "its scorer accepts every answer that is not empty",
    "knight_swap": "a problem takes a second or more, and its levels are refused by its own settings",
    "propositional_logic": "its scorer takes a premise, copied from the question, for a conclusion",
    "puzzle24": "its scorer does not compare the numbers that are used with those of the problem",
    "rearc": "its scorer compares tuples with the lists that JSON makes of them, and takes no answer",
    "zebra_puzzles": "it needs pycosat, which would have to be compiled at installation",
}

OFFERED = """
    ab acre advanced_geometry aiw arc_1d base_conversion basic_arithmetic bf binary_alternation binary_matrix
    bitwise_arithmetic boxnet caesar_cipher calendar_arithmetic chain_sum circuit_logic codeio
    color_cube_rotation complex_arithmetic count_bits count_primes countdown course_schedule cryptarithm
    decimal_arithmetic decimal_chain_sum dice emoji_mystery family_relationships figlet_font fraction_simplification
    futoshiki game_of_life gcd graph_color group_anagrams gsm_symbolic intermediate_integration isomorphic_strings jugs
    kakurasu knights_knaves largest_island lcm leg_counting letter_counting letter_jumble list_functions mahjong_puzzle
    manipulate_matrix maze mini_sudoku modulo_grid n_queens needle_haystack number_filtering number_format
    number_sequence number_sorting palindrome_generation palindrome_partitioning path_star polynomial_equations
    polynomial_multiplication pool_matrix power_function prime_factorization products quantum_lock ransom_note
    rectangle_count rotate_matrix rotten_oranges rubiks_cube rush_hour self_reference sentence_reordering
    shortest_path simple_equations simple_geometry simple_integration sokoban spell_backward spiral_matrix
    string_insertion string_manipulation string_splitting string_synthesis sudoku survo syllogism time_intervals
    tower_of_hanoi tsumego word_ladder word_sequence_reversal word_sorting
"""

COMPARED = """
    acre aiw arc_1d base_conversion basic_arithmetic bf binary_alternation caesar_cipher count_bits count_primes
    course_schedule gcd isomorphic_strings largest_island lcm leg_counting letter_counting list_functions
    mahjong_puzzle maze modulo_grid number_filtering number_sequence ransom_note rotate_matrix rotten_oranges
    simple_equations simple_geometry string_manipulation string_splitting string_synthesis syllogism
    word_sequence_reversal
"""

# Families whose generator gives many problems one answer, which a policy would learn in the place of solving them
# (`benchmarks/gym_constants.py`): the share that an answer may have here; 0.5 of two answers, 0.34 of three. Of
# self_reference too few problems would be left.
BALANCED: Mapping[str, float] = {
    "acre": 0.34,
    "binary_alternation": 0.2,
    "circuit_logic": 0.5,
    "polynomial_equations": 0.1,
    "ransom_note": 0.5,
    "rotten_oranges": 0.2,
    "shortest_path": 0.1,
    "syllogism": 0.5,
}

FAMILIES: Mapping[str, Family] = {
    name: Family(name in COMPARED.split(), GRAMMARS.get(name), BALANCED.get(name, 1.0)) for name in OFFERED.split()
}


def compare(answer: str, gold: str) -> float:
    """The library's rule for a family without a scorer: 1 for the task's own answer, word for word; for a longer text
    with that answer inside, the answer's share of its length."""
    if answer == gold:
        return 1.0
    return len(gold) / len(answer) if gold and gold in answer else 0.0


def check_family(name: str, where: str = "") -> None:
    """Raises BadInput for a family that is not offered, with the reason or the nearest name."""
    if name in FAMILIES:
        return
    key = "" if where else "env.families"
    if name in LEFT_OUT:
        raise BadInput(f"the family {name} is left out: {LEFT_OUT[name]}", where=where, key=key)
    hint = nearest(name, FAMILIES, otherwise="")
    raise BadInput(where=where, key=key, found=name, expected=f"one of the {len(FAMILIES)} families{hint}")
