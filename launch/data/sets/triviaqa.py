"""TriviaQA: questions of quiz lovers, with all names of an answer."""

from launch.data.records import Files, PublicSet

HUB = ("RUC-NLPIR/FlashRAG_datasets:triviaqa",)

TRIVIAQA = PublicSet(
    name="triviaqa",
    title="TriviaQA",
    licence="not stated for the questions (the authors' code: Apache-2.0)",
    page="https://nlp.cs.washington.edu/triviaqa",
    splits={
        "train": Files(
            names=("triviaqa/train.jsonl", "trivia_qa/rc.nocontext/train-*.parquet"), hub=HUB, split="train"
        ),
        "dev": Files(names=("triviaqa/dev.jsonl", "trivia_qa/rc.nocontext/validation-*.parquet"), hub=HUB, split="dev"),
        "test": Files(names=("triviaqa/test.jsonl",), hub=HUB, split="test"),
    },
)
