"""The keys of question answering with search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Optional, Union

from envs.problems.knowledge import KnowledgeConfig
from envs.protocols import PROTOCOLS
from envs.protocols.record import check_bare
from envs.protocols.retrieval import ITER_RETGEN, PROMPTED
from envs.tasks.config import TaskConfig
from envs.tasks.prompts import ExamplesConfig
from envs.tools.search import MAX_TOPK, WEB, SearchConfig
from rlsys.errors import require, require_bounds


@dataclass(frozen=True, kw_only=True)
class SearchQAConfig(TaskConfig):
    has_tool: ClassVar[bool] = True
    name: str = "search_qa"
    protocol: str = "research"
    """Prompt format of the episode. With searches by the policy: swirl, research, icrl, o2_searcher. Baselines: direct,
    cot, rag, iter_retgen, ircot."""
    template: Literal["base", "instruct"] = "instruct"
    """Form of the prompt. base: one text without a chat template (not swirl, o2_searcher, ircot). instruct: chat
    messages."""
    train_tasks: int = 2048
    knowledge: KnowledgeConfig = field(default_factory=KnowledgeConfig)
    """Knowledge that questions and passages are made up from."""
    max_turns: Optional[int] = None
    """Number of messages per episode. null: swirl 6, icrl 7, o2_searcher 5 (the searches and the answer), research as
    many as the token limit allows, iter_retgen 3, ircot 9. swirl and ircot grant one more if the last is a search, with
    a request for the answer."""
    topk: Optional[int] = None
    """Number of passages per search. null: swirl 1, icrl and o2_searcher 3, research and the baselines 5."""
    max_reply_tokens: Optional[int] = None
    """Length limit of a search result in the context, in tokens; longer results are cut. null: icrl 500, the others no
    limit. Passages in a prompt are never cut."""
    instruction: Optional[str] = None
    """Text before every question; `{calls}` becomes the number of searches. null: the protocol's own. "": none."""
    demonstrations: ExamplesConfig = field(default_factory=ExamplesConfig)
    """Few-shot examples in the prompt (icrl, research)."""
    made_up_examples: Literal["search", "answer"] = "search"
    """Solution in the examples that are written for made-up questions. search: with searches. answer: at once, a
    control, in which examples show no tool."""
    demo_follow_rate: Union[float, tuple[float, ...], None] = None
    """Share of answers that follow the examples, in the demonstrations of an sft stage that teaches a policy built from
    scratch to follow examples. Its prompts have 0 to `demonstrations.count` examples, which all search or all answer at
    once. After examples of the kind of `made_up_examples`, this share of the answers searches; the others are guesses.
    A list has a share for each number of such examples, beginning with 0, whose share also holds after examples of the
    other kind. null: every prompt has the same examples."""
    demo_protocols: dict[str, float] = field(default_factory=dict)
    """Share of each protocol in the demonstrations of made-up questions, so that a policy built from scratch also
    learns the formats of the baselines. {}: `protocol` alone."""
    demo_mistakes: Literal["all", "early"] = "all"
    """Kind of mistake in the share `demo_error_rate` of the demonstrations. early: always the answer of a hop
    before the last."""
    retriever: SearchConfig = field(default_factory=SearchConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        fitting = [name for name, protocol in PROTOCOLS.items() if protocol.topk is not None]
        require(self.protocol in fitting, "env.protocol", self.protocol, f"one of {', '.join(fitting)}")
        self._check_demonstrations(fitting)
        require_bounds(self, "env.", "at least 1, or null", "max_turns", "max_reply_tokens")
        require(self.topk is None or 1 <= self.topk <= MAX_TOPK, "env.topk", self.topk, f"1 to {MAX_TOPK}, or null")
        allowed = self.template == "instruct" or PROTOCOLS[self.protocol].base_instruction is not None
        require(allowed, "env.template", self.template, f"instruct: protocol={self.protocol} is a chat")
        demos, corpus, synth = self.demonstrations, self.retriever.corpus, self.data is None
        plain = demos.count == 0 or PROTOCOLS[self.protocol].shows_examples
        require(plain, "env.demonstrations.count", demos.count, f"0: {self.protocol} shows no examples in its prompt")
        fits = demos.layout != ("turns" if self.template == "base" else "text")
        others = "message or text: it is no chat" if self.template == "base" else "message or turns: it is a chat"
        require(fits, "env.demonstrations.layout", demos.layout, others)
        laid = demos.layout == "message" or PROTOCOLS[self.protocol].shows_examples
        require(laid, "env.demonstrations.layout", demos.layout, f"message: {self.protocol} shows no examples")
        require(corpus is None or not synth, "env.retriever.corpus", corpus, "null, or questions about it in env.data")
        require(self.eval_data is None or not synth, "env.eval_data", self.eval_data, "null, or env.data too")
        web = self.retriever.kind == WEB
        require(not (synth and web), "env.retriever.kind", WEB, "a retriever of ours: made-up questions are on no web")
        searching = self.tools and PROTOCOLS[self.protocol].topk
        has_source = not searching or synth or corpus is not None or self.retriever.url is not None or web
        ways = "passages for the questions of env.data, or retriever.url, or retriever.kind=web"
        require(has_source, "env.retriever.corpus", corpus, ways)
        made_up = demos.file is None and synth and PROTOCOLS[self.protocol].shows_examples
        expected = "search, where no made-up examples are shown"
        require(made_up or self.made_up_examples == "search", "env.made_up_examples", self.made_up_examples, expected)
        written = synth or demos.count == 0 or demos.file is not None
        require(written, "env.demonstrations.file", demos.file, "a file: examples are written for made-up questions")
        self._check_follow_rates()
        if not self.tools:
            self._check_bare()

    def _check_follow_rates(self) -> None:
        rates, demos, follow_rate = self.follow_rates, self.demonstrations, self.demo_follow_rate
        if rates is None:
            return
        has_made_up = demos.count > 0 and demos.file is None
        require(has_made_up, "env.demo_follow_rate", follow_rate, "null without made-up demonstrations to follow")
        between = all(0 <= rate <= 1 for rate in rates)
        require(between, "env.demo_follow_rate", follow_rate, "between 0 and 1, or null")
        listed = f"{demos.count + 1} shares, for 0 to env.demonstrations.count={demos.count} examples of one kind"
        require(len(rates) == demos.count + 1, "env.demo_follow_rate", follow_rate, listed)

    def _check_bare(self) -> None:
        protocol = PROTOCOLS[self.protocol]
        calls = bool(protocol.topk) and self.protocol not in PROMPTED
        require(calls, "env.tools", False, f"true: in {self.protocol} the policy has no search to call")
        require(not self.demo_protocols, "env.demo_protocols", self.demo_protocols, "{} with env.tools=false")
        check_bare(protocol, self.instruction, self.demonstrations.count)

    def _check_demonstrations(self, fitting: Sequence[str]) -> None:
        for name, share in self.demo_protocols.items():
            require(name in fitting, "env.demo_protocols", name, f"of {', '.join(fitting)}")
            expected = "another: in it the environment decides what is searched"
            require(name != ITER_RETGEN.name, "env.demo_protocols", name, expected)
            require(share > 0, f"env.demo_protocols.{name}", share, "a share above 0")
        several = self.demo_mistakes == "all" or self.knowledge.hops > 1
        require(several, "env.demo_mistakes", self.demo_mistakes, "all, with knowledge.hops=1: nothing is too early")

    @property
    def follow_rates(self) -> tuple[float, ...] | None:
        """`demo_follow_rate`, by the number of examples that search; a single share begins with the first example."""
        if isinstance(self.demo_follow_rate, (int, float)):
            return (0.0, *[self.demo_follow_rate] * self.demonstrations.count)
        return self.demo_follow_rate

    @property
    def protocol_name(self) -> str:
        return self.protocol

    @property
    def resets_context(self) -> bool:
        """Episodes start new contexts (`Step.reset_context`): none of their messages is a state to train on."""
        return self.protocol == ITER_RETGEN.name
