"""An agent over the openai SDK that knows nothing of rlsys: it answers questions with a search engine at SEARCH_URL."""

import json
import os
import sys
import urllib.request

from openai import OpenAI

SEARCHES, STOP = 4, ["</search_query>", "</answer>"]
NO_MORE = "No more queries are allowed. Write the answer now, enclosed by <answer> and </answer>."
client = OpenAI()


def search(query):
    if not query:
        return "error: empty query"
    body = json.dumps({"queries": [query], "topk": 2}).encode()
    request = urllib.request.Request(os.environ["SEARCH_URL"], body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            (documents,) = json.load(answer)["result"]
    except OSError:
        sys.exit(137)  # as if it were killed: this says nothing of the policy, and is played again
    return "\n".join(document["contents"].partition("\n")[2] for document in documents)


def solve(task):
    messages = [{"role": "user", "content": task["question"]}]
    for searches in range(SEARCHES + 2):
        answer = client.chat.completions.create(model="policy", messages=messages, stop=STOP)
        text = answer.choices[0].message.content or ""
        messages.append({"role": "assistant", "content": text})
        if "<answer>" in text or "<search_query>" not in text:
            break
        query = text.partition("<search_query>")[2].strip()
        found = f"{query} -> {search(query)}" if searches < SEARCHES else NO_MORE
        messages.append({"role": "user", "content": found})
