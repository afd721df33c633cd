"""The options of question answering with search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Optional

from envs.problems.knowledge import KnowledgeConfig
from envs.services.guard import GuardConfig
from envs.services.retriever.config import KINDS, RetrieverConfig
from envs.worlds.search_protocols import PROTOCOLS
from rlsys.errors import require

MAX_EXAMPLES = 5  # made-up questions kept for examples in prompts: never trained on, never held out
MAX_TOPK = 100  # what the server allows


@dataclass(frozen=True, kw_only=True)
class ExamplesConfig:
    """Solved problems in front of the question (ICRL's curriculum: 3, then 2, then 0)."""

    count: int = 0
    """The first so many of the file."""
    file: Optional[str] = None
    """Each after a line `===============Example N===============`; null writes examples of made-up questions."""

    def __post_init__(self) -> None:
        require(self.count >= 0, "env.demonstrations.count", self.count, "0 or more")
        few = self.file is not None or self.count <= MAX_EXAMPLES
        require(few, "env.demonstrations.count", self.count, f"at most {MAX_EXAMPLES} without demonstrations.file")


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """Where passages come from, and what a search may cost."""

    url: Optional[str] = None
    """A running server that speaks Search-R1's protocol; null starts one."""
    token_env: Optional[str] = None
    """Name of the environment variable with the token of the server at `url`; null sends none."""
    corpus: Optional[str] = None
    """JSON lines of {"id", "contents"} for the server to start; null with made-up questions, as made up as they are."""
    kind: str = "bm25"
    """This and the next three are the started server's; `envs.services.retriever.config` says more."""
    index: Optional[str] = None
    """A folder that `rlsys index` built; null builds the index in memory."""
    encoder: str = "e5"
    """e5, minilm, a folder or a hub name (dense, hybrid)."""
    faiss: str = "Flat"
    on_failure: Literal["fail", "empty"] = "fail"
    """Of the retriever. fail: the episode is a typed failure; empty: its policy sees an empty result, as in ICRL."""
    guard: GuardConfig = field(default_factory=GuardConfig)

    def __post_init__(self) -> None:
        require(self.kind in KINDS, "env.retriever.kind", self.kind, f"one of {', '.join(KINDS)}")
        alone = self.url is None or self.corpus is None
        require(alone, "env.retriever.corpus", self.corpus, "null beside retriever.url, whose server has its own")
        asked = self.token_env is None or self.url is not None
        require(asked, "env.retriever.token_env", self.token_env, "null without retriever.url")

    @property
    def options(self) -> RetrieverConfig:
        """Of the server to start."""
        return RetrieverConfig(kind=self.kind, index=self.index, encoder=self.encoder, faiss=self.faiss)


@dataclass(frozen=True, kw_only=True)
class SearchQAConfig:
    name: str = "search_qa"
    protocol: Literal["swirl", "research", "icrl"] = "research"
    template: Literal["base", "instruct"] = "instruct"
    """base: one text without a chat template (research, icrl)."""
    data: Optional[str] = None
    """Training questions: a file, a folder or a data set on the hub; null makes them up."""
    data_split: Optional[str] = None
    """Of a folder or a data set on the hub, as is `eval_split`."""
    eval_data: Optional[str] = None
    """Held-out questions, all of them; null holds out from `data` (half of it at most), or makes them up."""
    eval_split: Optional[str] = None
    train_tasks: int = 2048
    """Made-up training questions; `data` is used whole."""
    held_out_tasks: int = 256
    """Made-up, or taken out of `data` in a seeded hash order."""
    seed: int = 0
    """Of everything made up, of the split of `data` and of the demonstrations."""
    knowledge: KnowledgeConfig = field(default_factory=KnowledgeConfig)
    """What is made up."""
    max_turns: Optional[int] = None
    """Messages per episode; null: swirl 6, icrl 7 (the searches and the answer), research as many as the tokens allow.
    swirl grants one more where the last of them is a search: it is told to answer."""
    topk: Optional[int] = None
    """Passages per search; null: swirl 1, research 5, icrl 3."""
    max_reply_tokens: Optional[int] = None
    """Longer results are cut; null: icrl 500, the others never."""
    instruction: Optional[str] = None
    """In front of every question; `{calls}` becomes the number of searches; null is the protocol's, "" none."""
    demonstrations: ExamplesConfig = field(default_factory=ExamplesConfig)
    """In the prompt (icrl)."""
    demo_error_rate: float = 0.5
    """Share of the demonstrations for sft stages with a mistake in them."""
    retriever: SearchConfig = field(default_factory=SearchConfig)

    def __post_init__(self) -> None:
        require(self.protocol in PROTOCOLS, "env.protocol", self.protocol, f"one of {', '.join(PROTOCOLS)}")
        for key in ("train_tasks", "held_out_tasks"):
            require(getattr(self, key) >= 1, f"env.{key}", getattr(self, key), "at least 1")
        for key in ("max_turns", "max_reply_tokens"):
            value = getattr(self, key)
            require(value is None or value >= 1, f"env.{key}", value, "at least 1, or null")
        require(self.topk is None or 1 <= self.topk <= MAX_TOPK, "env.topk", self.topk, f"1 to {MAX_TOPK}, or null")
        require(0 <= self.demo_error_rate <= 1, "env.demo_error_rate", self.demo_error_rate, "between 0 and 1")
        allowed = self.template == "instruct" or PROTOCOLS[self.protocol].base_instruction is not None
        require(allowed, "env.template", self.template, f"instruct: protocol={self.protocol} is a chat")
        self._check_sources()

    def _check_sources(self) -> None:
        shown, corpus = self.demonstrations, self.retriever.corpus
        plain = shown.count == 0 or self.protocol == "icrl"
        require(plain, "env.demonstrations.count", shown.count, "0: only icrl shows examples in its prompt")
        if self.data is None:
            require(corpus is None, "env.retriever.corpus", corpus, "null, or questions about it in env.data")
            require(self.eval_data is None, "env.eval_data", self.eval_data, "null, or env.data too")
        else:
            found = corpus is not None or self.retriever.url is not None
            require(found, "env.retriever.corpus", corpus, "passages for the questions of env.data, or retriever.url")
            written = shown.count == 0 or shown.file is not None
            require(
                written, "env.demonstrations.file", shown.file, "a file: examples are written for made-up questions"
            )
