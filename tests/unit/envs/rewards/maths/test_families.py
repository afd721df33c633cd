"""Answers by family, each with what is nearly the same and is not: Chinese, physics, dates, bases, words, money."""

import pytest

from envs.rewards.maths.compare import decided, equivalent

SAME = {
    "chinese": [
        ("6个", "6"),
        ("三十五个", "35"),
        ("5个苹果", "5"),
        ("25平方米", r"25\text{ m}^2"),
        ("答案为 3.5", "3.5"),
        ("约为 2.5", "2.5"),
        ("80公里/小时", "80 km/h"),
        ("百分之二十", r"20\%"),
        ("三分之二", r"\frac23"),
        ("5万", "50000"),
        ("零下3度", "-3"),
        ("2、3", "3, 2"),
        ("正确", "对"),
        ("2022年5月1日", "2022-05-01"),
        ("下午3点20分", "3:20 PM"),
        ("无实数解", r"\emptyset"),
    ],
    "physics": [
        (r"6\ \text{m}\cdot\text{s}^{-1}", "6"),
        (r"6 \mathrm{mol^{-1}}", "6"),
        (r"47\,\Omega", "47"),
        (r"5\text{ kg}\cdot\text{m/s}", r"5\ \text{kg m s}^{-1}"),
        (r"4.18\ \mathrm{J/(g\cdot K)}", "4.18"),
        (r"100\ \mu\text{m}", r"0.1\text{ mm}"),
        (r"9.81\ \frac{\text{m}}{\text{s}^2}", r"9.81\ \mathrm{m\,s^{-2}}"),
        (r"5.0 \times 10^{-3}\ \text{mol/L}", r"5\times10^{-3}"),
        (r"v = 20\ \mathrm{m/s}", "20"),
        (r"0.25\text{ m}^2", r"2500\text{ cm}^2"),
    ],
    "moments": [
        ("14:30", "2:30 PM"),
        ("2:30", "2:30 pm"),
        ("07/05/2020", "July 5, 2020"),
        ("Monday, March 4", "March 4"),
        ("1 h 15 min", "75 min"),
        ("1 hour and 15 minutes", "1.25 hours"),
        ("midnight", "12:00 AM"),
        ("4 - 1", "4-1"),
        ("5 in the afternoon", "5 PM"),
        ("15/03/2024", "March 15, 2024"),
    ],
    "bases": [
        ("0b1011", "1011_2"),
        ("FF_{16}", "ff_{16}"),
        ("1011 (base 2)", "1011_2"),
        (r"1011\text{ base }2", "1011_{(2)}"),
        (r"1011_{\text{two}}", "1011"),
        ("2:3", "4:6"),
        ("6:9:12", "2:3:4"),
    ],
    "words": [
        ("twenty five", "25"),
        ("five-eighths", "5/8"),
        ("minus two", "-2"),
        ("three hundred and five", "305"),
        ("ninety percent", r"90\%"),
        ("fifteen minutes", "15"),
        ("second", "2nd"),
        ("twenty-first", "21st"),
        ("an ellipse", "The ellipse"),
        ("It diverges", "diverges"),
        (r"\text{The function is odd}", "odd"),
        (r"\text{The maximum value is }5", "5"),
        ("Yes", "True"),
        (r"\text{No}", "False"),
        ("No, it is not", "No"),
    ],
    "matrices": [
        (r"\begin{pmatrix}1&2\end{pmatrix}^T", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^{\top}", r"\begin{pmatrix}1&3\\2&4\end{pmatrix}"),
        ("(1, 2)^T", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"\operatorname{diag}(3,4)", r"\begin{pmatrix}3&0\\0&4\end{pmatrix}"),
        (r"\begin{pmatrix}1&0\\0&1\end{pmatrix}", "I_2"),
        (r"\begin{pmatrix}1&0\\0&1\end{pmatrix}", "I"),
    ],
    "parts": [
        (r"(a) 10\\ (b) 20", "(a) 10; (b) 20"),
        ("a) 10 b) 20", "(a) 10, (b) 20"),
        ("(a) x=1 (b) x=2", "(a) 1 (b) 2"),
        ("10, 20", "(a) 10; (b) 20"),
        (r"\text{Part A: }10, \text{Part B: }20", "(a) 10, (b) 20"),
        ("mean = 4, median = 5", "mean: 4, median: 5"),
        ("4, 5, 6", "[4, 5, 6]"),
        ("(4, 5, 6)", "[4, 5, 6]"),
        ("4, 5", "[4, 5]"),
        (r"\frac12", r"\frac{AB}{CD} = \frac12"),
        ("7:32", "S_1:S_2 = 7:32"),
    ],
    "money": [
        ("12 US dollars", r"\$12"),
        ("EUR 12", "€12"),
        ("12,50 €", "€12.50"),
        (r"\$3.5B", r"\$3.5 billion"),
        ("£1.50", "150 pence"),
        ("Rs. 250", "₹250"),
        ("0.35", r"35\%"),
        ("35", r"35\%"),
        (r"-10\%", "-0.1"),
        ("6 lakh", "600000"),
        ("2 gross", "288"),
        ("6 degrees below zero", "-6"),
    ],
}
DIFFERENT = {
    "chinese": [
        ("6个半", "6"),
        ("6万", "6"),
        ("不是6", "6"),
        ("6或7", "6"),
        ("6米", "6厘米"),
        ("三十五", "36"),
        ("是", "不是"),
    ],
    "physics": [
        (r"5\ \mathrm{kg}", r"5\ \mathrm{kJ}"),
        (r"-6\ \text{m/s}", r"6\ \text{m/s}"),
        (r"9.8\ \text{m/s}", r"9.8\ \text{m/s}^2"),
        (r"5\ \mathrm{mA}", r"5\ \mathrm{MA}"),
        (r"47\,\Omega", r"47\text{ V}"),
        (r"5\cdot s", "5"),
        ("20 C", "20 F"),
    ],
    "moments": [
        ("4-1", "3"),
        ("3", "4-1"),
        ("10:30", "1/3"),
        ("6 pm", "6 am"),
        ("2020-07-05", "2008"),
        ("17:00", "5:00"),
        ("2024-13-45", "2024-12-31"),
        ("1 h 15 min", "1.15 hours"),
        ("5 min 2 h", "125 min"),
        ("3 m 2 s", "5"),
    ],
    "bases": [
        ("1011_2", "1011_3"),
        ("1011_2", "11_{10}"),
        ("a_{12}", "A"),
        ("12_2", "12_3"),
        ("2:3", "6:4"),
        ("2:3:4", "2:3"),
    ],
    "words": [
        ("twenty-three", "32"),
        ("two or three", "2"),
        ("one less than two", "2"),
        ("hundred five million billion", "5"),
        ("not odd", "odd"),
        (r"\text{The maximum value is not }5", "5"),
        ("Yes, but not always", "Yes"),
        ("Yes, it is not", "Yes"),
        ("The square is red", "The circle is red"),
    ],
    "matrices": [
        (r"\begin{pmatrix}1&2\end{pmatrix}^T", r"\begin{pmatrix}1&2\end{pmatrix}"),
        (r"\begin{pmatrix}1&0\\0&1\end{pmatrix}", "I_3"),
        (r"\text{diag}(1,2)", r"\begin{pmatrix}2&0\\0&1\end{pmatrix}"),
    ],
    "parts": [
        ("20, 10", "(a) 10; (b) 20"),
        ("(a) 10", "(a) 10 (b) 20"),
        ("(b) 10 (a) 20", "(a) 10 (b) 20"),
        ("(4, 6, 5)", "[4, 5, 6]"),
        (r"\frac13", r"\frac{AB}{CD} = \frac12"),
    ],
    "money": [
        ("12 EUR", r"12 \text{ USD}"),
        (r"\$2.5k", r"\$2.50"),
        ("0.35", r"0.35\%"),
        (r"0.35\%", "0.35"),
        ("6 lakh", "6"),
        ("6 crore", "6"),
        ("6 gross", "6"),
        ("6 mega", "6"),
        ("6 score", "6"),
        ("6 below zero", "6"),
        ("6 in debt", "6"),
        ("7 tens", "7"),
    ],
}


def _rows(table: dict[str, list[tuple[str, str]]]) -> list[tuple[str, str]]:
    return [pair for pairs in table.values() for pair in pairs]


@pytest.mark.parametrize(("given", "gold"), _rows(SAME))
def test_the_same_answer(given: str, gold: str) -> None:
    assert decided(given, [gold]) is not False and equivalent(given, gold)


@pytest.mark.parametrize(("given", "gold"), _rows(DIFFERENT))
def test_another_answer(given: str, gold: str) -> None:
    assert decided(given, [gold]) is not True and not equivalent(given, gold)
