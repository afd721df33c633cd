"""ExplaGraphs: whether an argument supports or counters a belief."""

from launch.data.records import Files, PublicSet, questions

EXPLAGRAPHS = PublicSet(
    name="explagraphs",
    title="ExplaGraphs",
    licence="MIT",
    page="https://github.com/swarnaHub/ExplaGraphs",
    splits={  # the authors' test split has no answers
        "train": Files(
            names=("ExplaGraphs/train.tsv", "ExplaGraphs/data/train.tsv", "explagraphs_train*.tsv"), count=2_368
        ),
        "dev": Files(names=("ExplaGraphs/dev.tsv", "ExplaGraphs/data/dev.tsv", "explagraphs_dev*.tsv"), count=398),
    },
    rows=questions("belief", "argument"),
    style="free",
    prompt="graph_rl/explagraphs",
)
