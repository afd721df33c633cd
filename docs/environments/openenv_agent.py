"""An agent that plays the environment of an OpenEnv server by OpenEnv's own loop, and returns the environment's reward.

python openenv_agent.py URL SPLIT: the tasks of the environment, from its own list.
"""

import json
import os
import sys

import requests
from openenv.core import GenericEnvClient
from openenv.core.env_server.mcp_types import Tool
from openenv.core.harness import MCPHarnessAdapter, StepEnvSessionAdapter, ToolResult
from openenv.core.harness.collect import build_model_step
from openenv.core.llm_client import OpenAIClient


def solve(task, url):
    schema = requests.get(f"{url}/schema").json()["action"]
    schema["properties"].pop("metadata")  # every action has it: it is the caller's
    session = StepEnvSessionAdapter(
        GenericEnvClient(base_url=url),
        tool_specs=[Tool(name="act", description=schema.get("description", ""), input_schema=schema)],
        action_builder=lambda name, arguments: arguments,
        initial_messages_builder=lambda start, _: [{"role": "user", "content": json.dumps(start.observation)}],
        tool_result_builder=lambda name, arguments, step, state: ToolResult(step.observation, step.done),
        reset_kwargs=task["reset"],
    )
    try:
        key, most = os.environ["OPENAI_API_KEY"], 1 << 20  # tokens of a message: the limit is the run's own
        policy = OpenAIClient(os.environ["OPENAI_BASE_URL"], None, "policy", api_key=key, max_tokens=most)
        played = MCPHarnessAdapter().run_white_box(build_model_step(policy), session)
        return session.verify(played.messages).env_reward or 0.0  # None: it has never acted
    finally:
        session.close()


def write_tasks(url, split):
    (name,) = requests.get(f"{url}/list_environments").json()
    count = requests.post(f"{url}/{name}/num_tasks", json={"split": split}).json()["num_tasks"]
    for index in range(count):
        print(json.dumps({"prompt": f"{name} {split} {index}", "reset": {"split": split, "index": index}}))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        write_tasks(*sys.argv[1:])
    else:
        print(solve(json.load(sys.stdin), sys.argv[1]))
