"""StrategyQA: yes or no, by steps that the question does not name."""

from launch.data.records import Files, PublicSet, questions

STRATEGYQA = PublicSet(
    name="strategyqa",
    title="StrategyQA",
    licence="MIT",
    page="https://github.com/eladsegal/strategyqa",
    splits={  # the authors' test split has no answers
        "train": Files(
            names=("strategyqa_train.json", "strategyqa*train*.jsonl"),
            hub=("voidful/StrategyQA:strategyqa_train.json",),
            count=2_290,
        )
    },
    rows=questions("term", "facts", "decomposition"),
    style="free",
    prompt="graph_rl/strategyqa",
)
