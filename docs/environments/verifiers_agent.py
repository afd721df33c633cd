"""An agent that plays environments of the verifiers package by their own loops, and returns what their rubrics give.

python verifiers_agent.py NAME ['{"argument": 1}' [eval]]: the tasks of an environment, from its own data set.
"""

import asyncio
import json
import sys

import verifiers as vf
from openai import AsyncOpenAI
from verifiers import OpenAIChatCompletionsClient, load_environment  # now, before agents fork: the package imports late


async def solve(task):
    environment = load_environment(task["environment"], **task["arguments"])
    client = OpenAIChatCompletionsClient(AsyncOpenAI())  # finds the policy at OPENAI_BASE_URL
    played = await environment.run_rollout(task["row"], client, "policy", environment.sampling_args)
    if error := played["error"]:
        if issubclass(getattr(vf, error["error"], vf.Error), vf.InfraError):
            sys.exit(137)  # like one that was killed: it says nothing of the policy, and is played again
        raise RuntimeError(error["error_chain_repr"])
    return played["reward"]


def write_tasks(name, arguments="{}", split="train"):
    environment = load_environment(name, **json.loads(arguments))
    if environment.requires_group_rollouts:
        sys.exit(f"{name} scores the episodes of a group together; an agent returns the reward of its own")
    about = {"environment": name, "arguments": json.loads(arguments)}
    for row in environment.get_eval_dataset() if split == "eval" else environment.get_dataset():
        print(json.dumps({"prompt": row["prompt"][-1]["content"], **about, "row": row}))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write_tasks(*sys.argv[1:])
    else:
        print(asyncio.run(solve(json.load(sys.stdin))))
