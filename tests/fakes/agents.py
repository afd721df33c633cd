"""Agents over the openai SDK, as their authors write them, and agents that do harm; a task's question names each."""

import asyncio
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Any

import httpx
import openai
from openai import AsyncOpenAI, OpenAI

ADD = {"a": {"type": "integer"}, "b": {"type": "integer"}}
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {"type": "object", "properties": ADD, "required": ["a", "b"]},
            "strict": True,
        },
    }
]


CLIENT, ASYNC = OpenAI(max_retries=0), AsyncOpenAI()


def play(task: dict[str, Any], base_url: str, api_key: str) -> Any:
    return AGENTS[task["question"]](task, base_url, api_key)


def ask(*messages: Any, **options: Any) -> Any:
    return CLIENT.chat.completions.create(model="any", messages=list(messages), **options)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def calculate(task: Any, *_: Any) -> float:
    """The usual loop: call, result, answer."""
    messages: list[Any] = [{"role": "developer", "content": [{"type": "text", "text": "Add."}]}, user("2 + 3?")]
    while True:
        message = ask(*messages, tools=TOOLS, temperature=0.2).choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return float(message.content == "It is 5.")
        for call in message.tool_calls:
            arguments = json.loads(call.function.arguments)
            total = str(arguments["a"] + arguments["b"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": total})


def delegate(*_: Any) -> dict[str, Any]:
    """Lets another agent work between two of its own questions, and shortens its memory at the end."""
    messages: list[Any] = [user("main?")]
    messages.append(ask(*messages).choices[0].message.model_dump())
    helped = ask(user("help?"), stop=["!"], max_tokens=40).choices[0]
    messages.append(user(f"helper: {helped.message.content}"))
    messages.append(ask(*messages).choices[0].message.model_dump())
    short = [user("main?"), {"role": "assistant", "content": "(short)"}, user("so?")]
    ask(*short)
    return {"reward": 0.5, "helped": helped.message.content, "stop": helped.finish_reason}


def several(*_: Any) -> int:
    """Asks for choices and in parallel."""

    async def play() -> int:
        client, first = ASYNC, user("q")
        once = await client.chat.completions.create(model="any", messages=[first])  # type: ignore[list-item]
        history = [first, {"role": "assistant", "content": once.choices[0].message.content}, user("again")]
        calls = [client.chat.completions.create(model="any", messages=history, n=2) for _ in range(2)]  # type: ignore[call-overload]
        answers = await asyncio.gather(*calls)
        return len({choice.message.content for answer in answers for choice in answer.choices})

    return asyncio.run(play())


def stream(*_: Any) -> str:
    chunks = list(ask(user("q"), tools=TOOLS, stream=True, stream_options={"include_usage": True}, logprobs=True))
    calls = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or ()]
    usage = next(chunk.usage for chunk in chunks if chunk.usage)
    return f"{calls[0].function.name} {usage.completion_tokens > 0} {chunks[0].choices[0].logprobs is not None}"


def respond(task: Any, *_: Any) -> float:
    """The usual loop over the API of responses, every second answer streamed, and one more as events."""
    tools: Any = [{"type": "function", **TOOLS[0]["function"]}]
    items: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "2 + 3?"}]}]
    client, streamed = OpenAI(max_retries=0), False
    options: Any = {"model": "any", "instructions": "Add.", "tools": tools, "temperature": 0.2, "store": False}
    while True:
        if streamed:
            with client.responses.stream(input=items, **options) as stream:
                response: Any = stream.get_final_response()
        else:
            response = client.responses.create(input=items, include=["reasoning.encrypted_content"], **options)
        streamed = not streamed
        items += response.output
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            break
        for call in calls:
            arguments = json.loads(call.arguments)
            total = str(arguments["a"] + arguments["b"])
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": total})
    items.append(user("again"))
    events = list(client.responses.create(input=items, stream=True, **options))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return float(response.output_text == "It is 5." and text == "One." and response.usage.output_tokens > 0)


def unanswered(*_: Any) -> list[Any]:
    """What responses do not take, by its name."""
    client: Any = OpenAI(max_retries=0)
    ask = partial(client.responses.create, model="any", input="q")
    answers: list[Any] = [ask(max_output_tokens=5).status]
    for name, options in {
        "previous_response_id": {"previous_response_id": "resp_1"},
        "conversation": {"conversation": "conv_1"},
        "background": {"background": True},
        "tools[0].type is 'web_search'": {"tools": [{"type": "web_search"}]},
        "text.format": {"text": {"format": {"type": "json_object"}}},
        "reasoning.effort": {"reasoning": {"effort": "low"}},
        "input_image": {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
    }.items():
        try:
            ask(**options)
        except openai.BadRequestError as error:
            answers.append(name in str(error))
    return answers


def refused(task: Any, base_url: str, api_key: str) -> list[Any]:
    """What is not taken, by its status, and the models."""
    answers: list[Any] = [ask(user("q")).choices[0].finish_reason]
    for options in (
        {"logit_bias": {"5": 1}},
        {"response_format": {"type": "json_object"}},
        {"tool_choice": {"type": "function", "function": {"name": "add"}}, "tools": TOOLS},
        {"presence_penalty": 1.0},
        {"n": 100},
    ):
        try:
            ask(user("q"), **options)
        except openai.BadRequestError as error:
            answers.append(next(iter(options)) in str(error))
    forged = {"role": "tool", "tool_call_id": "000000007", "content": "5"}
    for messages in ([user("q"), forged], [user("q"), {"role": "assistant", "content": "x"}], []):
        try:
            ask(*messages)
        except openai.BadRequestError as error:
            answers.append(error.status_code)
    send = {"url": f"{base_url}/chat/completions", "headers": {"authorization": f"Bearer {api_key}"}}
    answers.append(httpx.post(**send, content=b'{"messages": [').status_code)
    answers.append(httpx.post(**send, content=b"[" * 100_000).status_code)
    answers.append(httpx.post(**send, content=b'"' + b"x" * (2 << 20) + b'"').status_code)
    answers.append(httpx.post(send["url"], headers={"authorization": "Bearer sk-other"}, json={}).status_code)
    answers.append([model.id for model in OpenAI().models.list()])
    return answers


def late(task: Any, base_url: str, api_key: str) -> int:
    """Another agent goes on with its key when it is gone."""
    ask(user("q"))
    again = f"""
import httpx, sys, time
time.sleep(0.5)
url, key = sys.argv[1:]
httpx.post(url + "/chat/completions", headers={{"authorization": "Bearer " + key}}, json={{"messages": [{user("q")}]}})
"""
    subprocess.Popen([sys.executable, "-c", again, base_url, api_key], start_new_session=True)
    return 1


def hang(*_: Any) -> None:
    ask(user("q"))
    time.sleep(1000)


def fail(*_: Any) -> None:
    ask(user("q"))
    raise KeyError("what the policy said")


def leave(*_: Any) -> None:
    ask(user("q"))
    os._exit(3)


def crash(*_: Any) -> None:
    ask(user("q"))
    ctypes.string_at(0)


def killed(*_: Any) -> None:
    ask(user("q"))
    os.kill(os.getpid(), signal.SIGKILL)


def bomb(*_: Any) -> None:
    ask(user("q"))
    while True:
        try:
            if not os.fork():
                os.setsid()
        except OSError:
            time.sleep(0.01)


def eat(*_: Any) -> None:
    ask(user("q"))
    pieces = []
    while True:
        pieces.append(b"x" * (1 << 22))
        time.sleep(0.001)


def flood(*_: Any) -> None:
    client: Any = OpenAI(max_retries=0)
    client.chat.completions.create(model="any", messages=[user("q")])
    while True:
        with suppress(openai.APIStatusError):
            client.chat.completions.create(model="any", messages=[])


def endless(*_: Any) -> None:
    messages = [user("q")]
    while True:
        messages += [ask(*messages).choices[0].message, user("more")]


def shout(*_: Any) -> float:
    ask(user("q"))
    sys.stdout.write("x" * (8 << 20) + "\nthe end\n")
    return 1.0


def huge(*_: Any) -> str:
    ask(user("q"))
    return "x" * (1 << 20)


def silent(*_: Any) -> None:
    """Asks nothing."""


def daemon(*_: Any) -> float:
    subprocess.Popen(["/bin/sh", "-c", "setsid sleep 4321 &"])
    ask(user("q"))
    return 1.0


AGENTS = {
    agent.__name__: agent
    for agent in (
        calculate,
        delegate,
        several,
        stream,
        respond,
        unanswered,
        refused,
        late,
        hang,
        fail,
        leave,
        crash,
        killed,
        bomb,
        eat,
    )
    + (flood, endless, shout, huge, silent, daemon)
}
