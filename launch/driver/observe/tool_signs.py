"""Signs that a tool or a judge gives an answer that is none: its rewards are learned from all the same.

Rows count the calls since the workers' start; what counts here is what was added since the row before. A row in which a
worker began again says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from launch.driver.observe import thresholds

JUDGE, SEARCH = "judge", "search"


class ToolCounts:
    """What the newest row added to each count of each tool."""

    def __init__(self) -> None:
        self._counts: Mapping[str, float] = {}
        self._added: Mapping[str, float] = {}

    def see(self, counts: Mapping[str, float]) -> None:
        """counts: of one row, by `TOOL/COUNT`."""
        added = {key: count - self._counts.get(key, 0.0) for key, count in counts.items()}
        began_again = {key.partition("/")[0] for key, more in added.items() if key.endswith("/calls") and more < 0}
        self._counts = counts
        self._added = {key: more for key, more in added.items() if key.partition("/")[0] not in began_again}

    def share(self, tool: str, *names: str) -> float:
        """Of the calls that the newest row added; 0 without any."""
        calls = self._added.get(f"{tool}/calls", 0.0)
        return sum(self._added.get(f"{tool}/{name}", 0.0) for name in names) / calls if calls > 0 else 0.0


def unread(tools: ToolCounts) -> str:
    """No verdict is a negative verdict by the papers' rules: what the judge failed to say is learned from."""
    cut, unparsable = tools.share(JUDGE, "errors_cut"), tools.share(JUDGE, "errors_unparsable")
    if cut + unparsable < thresholds.UNREAD:
        return ""
    text = f"{cut + unparsable:.1%} of the judge's answers have no verdict that can be read"
    if cut >= unparsable:
        return f"{text}, most are cut at their limit: raise reward.judge.max_tokens, a judge's thoughts count"
    return f"{text} (tool/judge/errors_unparsable): try its prompt with rlsys judge-errors, or name another judge"


def unanswered(tools: ToolCounts) -> str:
    """With env.retriever.on_failure=empty an episode goes on with no passage, and learns to answer without."""
    failed = tools.share(SEARCH, "errors")
    if failed < thresholds.ERRORS:
        return ""
    return f"{failed:.1%} of the searches failed (tool/search/errors_*): look at env.retriever.* and its server"


def no_passage(tools: ToolCounts) -> str:
    """Of searches that were answered: the retriever is well, and has nothing for these queries."""
    empty = tools.share(SEARCH, "empty")
    if empty < thresholds.EMPTY:
        return ""
    return f"{empty:.0%} of the searches found no passage: look at env.retriever.corpus and .index, or the queries"
