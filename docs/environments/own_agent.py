"""An agent over the openai SDK that knows nothing of rlsys: word problems, with a calculator of its own."""

import ast
import operator

from openai import OpenAI

client = OpenAI()  # finds the policy at OPENAI_BASE_URL
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def calculate(expression):
    def value(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
            return OPERATIONS[type(node.op)](value(node.left), value(node.right))
        raise ValueError(expression)

    try:
        return str(float(value(ast.parse(expression.strip(), mode="eval").body)))
    except (ArithmeticError, RecursionError, SyntaxError, ValueError):
        return "error: not a calculation"


def solve(task):
    messages = [{"role": "user", "content": task["question"]}]
    for _ in range(4):
        answer = client.chat.completions.create(model="policy", messages=messages, stop=["</math_exp>", "</answer>"])
        text = answer.choices[0].message.content or ""
        messages.append({"role": "assistant", "content": text})
        if "<answer>" in text:
            return float(text.rpartition("<answer>")[2].strip() == task["answers"][0])
        if "<math_exp>" not in text:
            return 0.0
        expression = " ".join(text.rpartition("<math_exp>")[2].split())
        messages.append({"role": "user", "content": f"{expression} -> {calculate(expression)}"})
    return 0.0
