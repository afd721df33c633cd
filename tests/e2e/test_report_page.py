"""The page of a report in a real browser: it opens from a file, asks for nothing, and runs nothing that it shows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch.tools.report.kept import Room
from launch.tools.report.page import write_page
from rlsys.jsonl import json_line, json_object
from tests.fakes.hostile_texts import EVERYTHING
from tests.makers.report_example import agent_episode, episodes_of, example_report, halves, make_page, write_run


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_page(tmp_path_factory.mktemp("report"))


def test_it_opens_from_a_file_with_its_charts_drawn(visit: Any, report: str) -> None:
    opened = visit(report)
    assert opened.text(".verdict b") == "It learned."
    assert opened.page.locator(".chart canvas").count() == 6
    assert opened.page.locator(".section .plot").first.bounding_box()["y"] < 760 - 168  # on the first screen, whole
    opened.page.locator("#section-folded summary").click()
    opened.wait("#section-folded canvas")
    assert opened.faults() == []


def test_a_filter_a_group_and_a_trajectory_are_a_click_apart_and_each_is_a_link(visit: Any, report: str) -> None:
    opened = visit(report)
    opened.page.click("nav a[data-view=list]")
    opened.wait("#shelf .row")
    opened.page.fill("#filter", "step=2-3 & correct=1 & sort=-tokens")
    opened.page.press("#filter", "Enter")
    opened.wait("#columns :text('↓')")
    opened.wait_text("#found", r"\d+ of 102")
    tokens = [int(text) for text in opened.texts("#shelf .of-tokens")]
    assert tokens == sorted(tokens, reverse=True) and 0 < len(tokens) < 24
    assert set(opened.texts("#shelf .of-step")) <= {"2", "3"}
    opened.page.locator("#shelf .row").first.click()
    opened.wait("#episode .card.model")
    kinds = [card.get_attribute("class") for card in opened.page.locator("#episode .card").all()]
    assert kinds == ["card prompt", "card prompt", "card model", "card result", "card model"]
    assert opened.text("#episode .call") == "<calculator>3 * 9</calculator>"
    assert len(opened.text("#episode .finding")) == 7
    opened.page.click("text=all 4 siblings")
    opened.wait("#group .sibling")
    assert opened.page.locator("#group .sibling").count() == 4
    assert opened.page.locator("#group .parts-here").count() == 4
    link, before = opened.page.url, opened.text("#group")
    opened.page.reload()
    opened.wait("#group .sibling")
    assert (opened.page.url, opened.text("#group")) == (link, before)
    assert opened.faults() == []


def test_what_is_paid_but_wrong_is_a_click_away(visit: Any, report: str) -> None:
    opened = visit(f"{report}#t")
    opened.page.click("#paid")
    from playwright.sync_api import expect

    paid = opened.page.evaluate("store.paid")
    expect(opened.page.locator("#filter")).to_have_value(f"play=none&reward>{paid}&correct=0")
    opened.wait_text("#found", r"\d+ of 102")
    assert opened.faults() == []


def test_tokens_take_the_colour_of_what_is_asked_and_make_the_text(visit: Any, report: str) -> None:
    opened = visit(f"{report}#t/step-000003:6.1")
    opened.wait("#episode .card.model")
    texts = opened.page.locator("#episode .card.model .text").all_inner_texts()
    for name in ("log-prob", "version", "trained", "advantage"):
        opened.page.click(f"#episode .choice button:text-is('{name}')")
        opened.wait(f"#episode button[aria-pressed=true]:text-is('{name}')")
        blocks = ["".join(block.locator("span").all_inner_texts()) for block in opened.page.locator(".tokens").all()]
        assert [text.replace("·", "") for text in blocks] == [texts[0], f"{texts[1]}<|end|>"]
        colours = opened.page.evaluate(
            "[...new Set([...document.querySelectorAll('.tokens span')].map(e => e.style.backgroundColor))].length"
        )
        assert colours == {"log-prob": colours, "version": 2}.get(name, 1) and (name != "log-prob" or colours > 20)
    assert opened.faults() == []


def test_keys_lead_through_the_list(visit: Any, report: str) -> None:
    opened = visit(f"{report}#t?step=2&sort=sequence")
    opened.wait("#shelf .row")
    for keys, title in (
        ("j Enter", "step-000002:3.1"),
        ("j", "step-000002:3.2"),
        ("n", "step-000002:4.0"),
        ("k", "step-000002:3.3"),
    ):
        for key in keys.split():
            opened.page.keyboard.press(key)
        opened.wait(f"#episode h2:text-is('{title}')")
    opened.page.keyboard.press("t")  # the list is where it was left
    opened.wait("#shelf .row.current:has-text('3.3')")
    opened.page.keyboard.press("Enter")
    opened.wait("#episode h2:text-is('step-000002:3.3')")
    opened.page.keyboard.press("g")
    opened.wait("#group h2:text-is('group step-000002:3')")
    opened.page.keyboard.press("?")
    opened.wait("dialog[open]")
    assert opened.faults() == []


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("q=THE%20SUM%2C%20therefore", None),
        ("tool=calculator", 102),
        ("tool=search", 0),
        ("part.format<0.1", None),
        ("rule=format", None),
    ],
)
def test_words_are_looked_for_in_all_texts(visit: Any, report: str, query: str, count: int | None) -> None:
    opened = visit(f"{report}#t?{query}")
    opened.wait_text("#found", r"\d+ of 102")
    matches = int(opened.text("#found").split()[0])
    assert 0 < matches < 102 if count is None else matches == count
    assert opened.faults() == []


def test_ten_thousand_trajectories_open(visit: Any, tmp_path: Path) -> None:
    run = {"steps": 250, "groups": 5, "siblings": 8, "padding": 2000, "tasks": 40, "distinct": 5}
    url = make_page(tmp_path, room=Room(10_000), **run)
    begin = time.perf_counter()
    opened = visit(f"{url}#t")
    opened.wait("#shelf .row")
    seconds = [time.perf_counter() - begin]
    assert opened.text("#found") == "9,998 of 9,998"  # of 10,006, in whole groups of 8
    opened.page.locator("#shelf .row").nth(3).click()
    opened.wait("#episode .card.model")
    seconds.append(time.perf_counter() - begin)
    opened.go("#t?q=9 cards each, therefore")
    opened.wait_text("#found", r"[1-9][\d,]* of 9,998")
    seconds.append(time.perf_counter() - begin)
    print("list, trajectory, search after", [round(elapsed, 2) for elapsed in seconds], "s")
    assert opened.page.evaluate("document.querySelectorAll('*').length") < 2_000
    assert opened.faults() == []


def test_charts_zoom_together_and_a_click_on_a_step_opens_its_trajectories(visit: Any, report: str) -> None:
    opened = visit(report)
    ranges = "[...charts.values()].map(({plot}) => [plot.scales.x.min, plot.scales.x.max].map(Math.round).join())"
    full_ranges = opened.page.evaluate(ranges)
    box = opened.page.locator(".u-over").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    opened.page.mouse.move(box["x"] + box["width"] / 4, middle)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + box["width"] / 2, middle, steps=4)
    assert opened.text(".chart .readout").startswith("step 1")
    opened.page.mouse.up()
    zoomed = opened.page.evaluate(ranges)
    assert len(set(zoomed)) == 1 and zoomed[0] == "62,123"  # a quarter and half of the way from 1 to 245
    opened.page.mouse.dblclick(box["x"] + 20, middle)
    opened.page.wait_for_timeout(400)  # neither of its clicks is one on a step
    assert opened.page.evaluate(ranges) == full_ranges and "#t" not in opened.page.url
    opened.page.click("#axes button:text-is('hours')")
    assert opened.page.evaluate("charts.get('reward').plot.data[0].at(-1)") == pytest.approx(
        245 * 0.45 / 3600, abs=1e-5
    )
    opened.page.mouse.click(box["x"] + box["width"] - 1, middle)
    opened.wait("#list:not([hidden])")
    assert opened.page.url.endswith("#t?step=245")
    assert opened.faults() == []


def test_what_is_drawn_is_what_was_measured(visit: Any, report: str) -> None:
    """A missing value is a gap; a step that another series has alone is none. Stacked areas are sums."""
    opened = visit(report)
    chart = {"series": [{"label": "a", "x": [1, 2, 3], "y": [1, None, 3]}, {"label": "b", "x": [2, 9], "y": [5, 7]}]}
    plot = opened.page.evaluate("chart => aligned(chart)", chart)
    assert plot["xs"] == [1, 2, 3, 9]
    assert plot["series"][0]["y"] == [1, None, 3, None] and plot["series"][1]["y"] == [None, 5, None, 7]
    kinds = "chart => aligned(chart).series[0].y.map(value => value === null ? 'gap' : typeof value)"
    assert opened.page.evaluate(kinds, chart) == ["number", "gap", "number", "undefined"]
    stacked = {"stacked": True, "series": [{**series, "x": [1, 2], "y": [1, 2]} for series in chart["series"]]}
    assert opened.page.evaluate("chart => plan(chart).data", stacked) == [[1, 2], [2, 4], [1, 2]]
    logs = {"log": True, "series": [{"label": "a", "x": [1, 2], "y": [0, 1e-6]}]}
    assert opened.page.evaluate("chart => aligned(chart).series[0].y", logs) == [None, 1e-6]
    assert opened.page.evaluate("runningMean([1, 3, null, 5], 2)") == [1, 2, None, 4]
    opened.page.locator(".chart[data-chart=correct] .data").click()
    lines = opened.page.input_value(".chart[data-chart=correct] textarea").splitlines()
    assert lines[0] == '"series","stage","step","value","low","high"' and len(lines) == 1 + 245 + 3
    assert lines[-1] == '"held out, greedy","rl",245,0.93,0.89,0.96'


def test_numbers_and_characters_are_decoded_as_they_were_written(visit: Any, report: str) -> None:
    opened = visit(report)
    values = [0.0, -0.5, -12.25, 6e-8, -1.5e-5, 65504.0]
    assert opened.page.evaluate("text => [...halfFloats(text)]", halves(values)) == np.array(values, "<f2").tolist()
    texts = opened.page.evaluate(
        "pieces => tokenTexts([1, 2, 3, 9], new Map(pieces))", [[1, "the"], [2, "\xe6\xbc"], [3, "\xa2"]]
    )
    assert texts == ["the", "", "漢", "⟨9⟩"]
    escaped = opened.page.evaluate("shown('a\\u202eb\\x1b\\n\\t\\u200d\\u{e0041}\\ud800')")
    assert escaped == "a⟨RLO⟩b␛\n\t⟨ZWJ⟩⟨U+E0041⟩⟨U+D800⟩"
    assert opened.page.evaluate("offsetAt('a\\u{1f600}b', 2)") == 3
    calls = {"x <a>1</a> <search>q</search> ": "search", "<a>1</a> x": None, "</a>": None, "<b></a>": None}
    for text, name in calls.items():
        assert opened.page.evaluate("text => callSpan(text)?.name ?? null", text) == name


def test_layers_over_a_hidden_one_lie_on_those_that_are_shown(visit: Any, report: str) -> None:
    opened = visit(report)
    tops = "charts.get('seconds').plot.series.map((own, at) => [own, at]).filter(([own, at]) => at && own.show)"
    tops += ".map(([own, at]) => charts.get('seconds').plot.data[at][50])"
    heights = opened.page.evaluate(tops)
    opened.page.locator("[data-chart=seconds] .legend button").first.click()
    lowest = heights[-1]
    assert opened.page.evaluate(tops) == pytest.approx([height - lowest for height in heights[:-1]])
    opened.page.locator("[data-chart=seconds] .legend button").first.click()
    assert opened.page.evaluate(tops) == pytest.approx(heights)
    assert opened.faults() == []


TERMS = {  # without a wish the newest step comes first
    **{"step=2-3": [2, 1], "step=2:3": [2, 1], "step!=2": [3, 2, 0], "reward>0.5": [3], "reward=-1:0": [1, 0]},
    **{"reward=none": [2], "reward=any": [3, 1, 0], "correct=1": [3], "failed=any": [2], "failed=time": [2]},
    **{
        "end!=answered": [2],
        "failed==time": [],
        "failed==timeout": [2],
        "sort=-reward": [3, 1, 0, 2],
        "sort=reward": [0, 1, 3, 2],
        "nonsense=1": [3, 2, 1, 0],
    },
    **{"step>=2&step<4": [2, 1], "reward=0": [1], "reward=x": [], "correct=0&sort=-step": [0]},
}


def test_terms_of_a_filter(visit: Any, report: str) -> None:
    columns = {"step": [1, 2, 3, 4], "reward": [-1, 0, None, 1], "correct": [False, None, None, True]}
    columns |= {"failure": [None, None, "timeout", None], "end": ["answered", "answered", "failed", "answered"]}
    opened = visit(report)
    opened.page.evaluate(
        "columns => Object.assign(store, {columns: new Map(Object.entries(columns)), size: 4}) && 0", columns
    )
    matches = {term: opened.page.evaluate("term => filterColumns(readFilter(term))", term) for term in TERMS}
    assert matches == TERMS


def test_the_list_shows_question_answer_and_right_answer(visit: Any, report: str) -> None:
    opened = visit(f"{report}#t?sort=-reward")
    opened.page.wait_for_function("[...listed.rows.keys()].every(place => store.told.has(place))")
    place = opened.page.evaluate("[...listed.rows.keys()][2]")
    expected = opened.page.evaluate(
        "place => store.episode(place).then(e => [e.task.question, e.messages.at(-1).content])", place
    )
    row = opened.page.locator("#shelf .row").nth(2)
    question, message, right = (row.locator(f".of-{name}").inner_text() for name in ("task_id", "said", "answers"))
    assert question and expected[0].startswith(question.strip()[:40]) and message.strip()[-10:] in expected[1]
    assert right == "62"
    assert opened.faults() == []


@pytest.fixture(scope="module")
def agents_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """With one episode of an agent, whose texts are hostile."""
    folder = tmp_path_factory.mktemp("agent")
    run = write_run(folder / "run", steps=1)
    with (run / "trajectories/step-000001.jsonl").open("ab") as file:
        file.write(json_line(agent_episode(EVERYTHING, exit=1, returned=[EVERYTHING])))
    write_page(example_report(), [episodes_of(run)], folder / "report.html")
    return (folder / "report.html").as_uri()


SAMPLES = [
    "sample 1 continues request 1 once more · 20 tokens, trained",
    "sample 2 history retold: the assistant's messages in it are context, not trained · 12 tokens, trained",
    "sample 3 new conversation · 23 tokens, trained",
    "sample 4 new conversation, which begins with the prompt above · 97 tokens, trained",
]


@pytest.mark.parametrize("width", [1280, 390])
def test_an_agents_requests_are_numbered_and_samples_begin_with_a_reason(
    visit: Any, agents_page: str, width: int
) -> None:
    opened = visit(f"{agents_page}#t/step-000001:900.0")
    opened.page.set_viewport_size({"width": width, "height": 844})
    opened.wait("#episode .sample")
    assert opened.texts("#episode .sample") == SAMPLES
    order = [f"model, request {number}" for number in (3, 4, 5, 6, 1, 2, 7)]
    assert opened.texts("#episode .card.model .who b") == order
    under = (
        "[...document.querySelectorAll('.sample')].map(each => each.nextElementSibling.querySelector('b').innerText)"
    )
    assert opened.page.evaluate(under) == ["tool result", "environment", "environment", "model, request 1"]
    agent = opened.text("#episode aside section:has(h3:text-is('Agent'))")
    assert agent.startswith("Agent\n\nexit code 1\n\nreturned [") and "planning\n" in agent
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    markdown = "asMarkdown(shownEpisode.place, shownEpisode.episode).includes('*sample 3; new conversation; 23 tokens')"
    assert opened.page.evaluate(markdown)
    opened.go("#g/step-000001:900")
    opened.wait("#group .sample")
    assert (
        opened.texts("#group .sample") == SAMPLES and opened.page.locator("#group .sibling .card.prompt").count() == 0
    )
    assert opened.faults() == []


@pytest.mark.parametrize("link", ["#t/step-000003:99.0", "#g/step-000003:99"])
def test_a_link_to_what_is_not_there_leads_to_its_file(visit: Any, report: str, link: str) -> None:
    opened = visit(f"{report}{link}")
    opened.page.click("text=those of step-000003")
    opened.wait_text("#found", r"12 of 102")
    opened.go("#t/step-999999:0.0")
    opened.wait("#episode :text('is not among')")
    assert opened.page.locator("#episode a").count() == 0 and opened.faults() == []


def test_of_siblings_the_rarest_come_first_and_equal_ones_are_one(visit: Any, report: str) -> None:
    opened = visit(f"{report}#g/step-000003:6")
    opened.wait("#group .sibling")
    columns = {"reward": [1.1, 1.1, 0.1, 1.1, None, 1.1], "failure": [None] * 6}
    opened.page.evaluate("columns => { for (const name in columns) store.columns.set(name, columns[name]); }", columns)
    assert opened.page.evaluate("rarestFirst([0, 1, 2, 3, 4, 5])") == [2, 4, 0, 1, 3, 5]
    episodes = [{"messages": [text]} for text in "ababaa"]
    kinds = opened.page.evaluate("episodes => kindsOf([0, 1, 2, 3, 4, 5], episodes).map(e => [e[0], e[2]])", episodes)
    assert kinds == [[0, [5]], [1, [3]], [2, []], [4, []]]
    assert opened.faults() == []


@pytest.mark.parametrize("link", ["", "#t", "#t/step-000003:6.1", "#g/step-000003:6"])
def test_a_phone_shows_the_name_of_the_run_and_no_wider_page(visit: Any, report: str, link: str) -> None:
    opened = visit(f"{report}{link}", is_mobile=True, has_touch=True)
    opened.page.set_viewport_size({"width": 390, "height": 844})
    opened.page.reload()
    opened.wait("body[data-ready]")
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 390
    inside = "e => e.scrollWidth <= e.clientWidth && e.getBoundingClientRect().right <= 390"
    assert opened.page.locator("h1").evaluate(inside)
    if link == "#t":
        opened.wait("#shelf .row")
        headers = [cell.inner_text() for cell in opened.page.locator("#columns .cell:visible").all()]
        assert headers == ["step", "question", "answer", "right answer", "right", "reward"]
    if not link:
        lines = "e => e.getClientRects().length && Math.round(e.getBoundingClientRect().height / 19)"
        assert max(cell.evaluate(lines) for cell in opened.page.locator(".table th:visible").all()) <= 3
    assert opened.faults() == []


# Texts smaller than 12 px, of elements and of canvases; what fillText wrote is kept in `drawn`.
SMALL = """() => {
    const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), small = [];
    while (nodes.nextNode()) {
        const { parentElement: own, data } = nodes.currentNode;
        if (data.trim() && own.checkVisibility() && parseFloat(getComputedStyle(own).fontSize) < 12) small.push(data);
    }
    return [...small, ...drawn.filter(([size]) => size < 12).map(([, text]) => text)];
}"""
DRAWN = """window.drawn = []; const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    drawn.push([parseFloat(/[\\d.]+px/.exec(this.font)[0]) / devicePixelRatio, text]);
    return fillText.call(this, text, ...rest);
};"""
COLOURS = ["good", "bad", "warn", "policy", "world", "quiet", *(f"series-{number}" for number in range(1, 9))]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_a_reader_clicks_through_all_of_it(visit: Any, report: str, width: int, scheme: str) -> None:
    opened = visit(report, color_scheme=scheme)
    page = opened.page
    page.set_viewport_size({"width": width, "height": 844})
    page.add_init_script(DRAWN)
    page.reload()
    opened.wait("body[data-ready]")

    def look(selector: str, *clicks: str) -> None:
        for click in clicks:
            page.click(click)
        opened.wait(selector)
        assert page.evaluate(SMALL) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    order = [".verdict .finding-text", ".verdict .trust", ".verdict .advice", ".tiles", ".chart"]
    tops = [page.locator(selector).first.bounding_box()["y"] for selector in order]
    assert tops == sorted(tops) and tops[-2] < 844
    values = page.evaluate("names => names.map(name => style(`--${name}`))", COLOURS)
    assert len(set(values)) == len(COLOURS)
    page.evaluate("document.querySelectorAll('#report details').forEach(each => { each.open = true; })")
    look("#section-folded canvas")
    assert page.evaluate("drawn.length") > 0
    look("[data-chart=reward].current", "a.tile >> nth=0")
    look("dialog[open]", "#help-button")
    look("#shelf .row .of-said span", "dialog button", "nav a[data-view=list]")
    look("#episode .card.model", "#shelf .row >> nth=0")
    page.click("nav a[data-view=list]")
    look("#episode .card.model", ".quick a:text-is('training')", "#shelf .row >> nth=0")
    for colour in ("log-prob", "version", "trained", "advantage"):
        look(".tokens span", f"#episode .choice button:text-is('{colour}')")
    look("#group .sibling", "text=all 4 siblings")
    assert page.locator("#group .each tr").last.bounding_box()["y"] < 844
    look("#episode .card.model", "#group .each a >> nth=0")
    look(".verdict", "nav a[data-view=report]")
    assert opened.faults() == []


def test_the_sibling_that_differs_comes_first_and_all_are_on_the_screen(visit: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=1, groups=1, siblings=16)
    path = run / "trajectories/step-000001.jsonl"
    lines = [json_object(line, "here") for line in path.read_bytes().splitlines()]
    for at, line in enumerate(lines):
        line |= {"reward": float(at == 11), "correct": at == 11, "end": "answered", "failure": None}
    path.write_bytes(b"".join(map(json_line, lines)))
    write_page(example_report(), [episodes_of(run)], tmp_path / "report.html")
    opened = visit(f"{(tmp_path / 'report.html').as_uri()}#g/step-000001:0")
    opened.wait("#group .sibling")
    names = opened.texts("#group .each a")
    assert names[:3] == ["sibling 11", "sibling 0", "sibling 1"] and len(names) == 16
    assert opened.page.locator("#group .each tr").last.bounding_box()["y"] < 760
    assert opened.text("#group .sibling b").startswith("sibling 11")
    assert opened.faults() == []
