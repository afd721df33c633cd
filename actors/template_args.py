"""Which arguments a chat template takes: those that it reads, without those that rlsys and transformers give it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, meta
from jinja2.ext import loopcontrols

from rlsys.errors import BadInput, nearest

KEY = "env.template_args"
GIVEN = {"messages", "raise_exception", "strftime_now"}
GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")  # a tag of transformers', which jinja2 does not know


def check_arguments(tokenizer: Any, arguments: Mapping[str, Any]) -> None:
    """Raises BadInput for an argument without effect, and for one that would change what rlsys itself decides."""
    if not arguments:
        return
    reserved = {*inspect.signature(tokenizer.apply_chat_template).parameters, *tokenizer.special_tokens_map} | GIVEN
    template_names = names_read(tokenizer.chat_template) - reserved
    for name in arguments:
        if name in reserved:
            raise BadInput("rlsys or the tokenizer sets it", key=f"{KEY}.{name}", found=arguments[name])
        if name not in template_names:
            hint = nearest(name, sorted(template_names)) if template_names else " (it reads none)"
            raise BadInput(f"the chat template never reads it{hint}", key=f"{KEY}.{name}", found=arguments[name])


def names_read(template: str | Mapping[str, str]) -> set[str]:
    """The variables that a template reads and does not set; of several for one tokenizer those of all."""
    texts = [template] if isinstance(template, str) else template.values()
    parse = Environment(extensions=[loopcontrols]).parse
    return {name for text in texts for name in meta.find_undeclared_variables(parse(GENERATION.sub("", text)))}
