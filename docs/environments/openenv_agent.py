"""An agent that plays an OpenEnv server by OpenEnv's own loop. With URL SPLIT it writes the server's own tasks."""

import json
import os
import sys
from contextlib import closing

import requests
from openenv.core import GenericEnvClient
from openenv.core.env_server.mcp_types import Tool
from openenv.core.harness import MCPHarnessAdapter, StepEnvSessionAdapter, ToolResult
from openenv.core.harness.collect import build_model_step
from openenv.core.llm_client import OpenAIClient
from websockets.exceptions import WebSocketException


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
    key, most = os.environ["OPENAI_API_KEY"], 1 << 20  # tokens of a message: the limit is the run's own
    policy = OpenAIClient(os.environ["OPENAI_BASE_URL"], None, "policy", api_key=key, max_tokens=most)
    with closing(session):
        played = MCPHarnessAdapter().run_white_box(build_model_step(policy), session)
        return session.verify(played.messages).env_reward or 0.0  # None: it has never acted


def write_tasks(url, split):
    (name,) = requests.get(f"{url}/list_environments").json()
    count = requests.post(f"{url}/{name}/num_tasks", json={"split": split}).json()["num_tasks"]
    for index in range(count):
        print(json.dumps({"prompt": f"{name} {split} {index}", "reset": {"split": split, "index": index}}))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        write_tasks(*sys.argv[1:])
    else:
        try:
            print(solve(json.load(sys.stdin), sys.argv[1]))
        except (OSError, WebSocketException):  # the server is gone, which says nothing of the policy
            sys.exit(137)  # as one that was killed: it is played again
