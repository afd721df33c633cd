"""A protocol without its tool (`env.tools: false`): the prompt names none, and every call is one over the limit."""

from __future__ import annotations

from dataclasses import replace

from envs.protocols.record import Protocol
from rlsys.errors import require


def without_tool(protocol: Protocol) -> Protocol:
    """No calls: the first is answered as the protocol answers one over its limit. Its tags stay what they are."""
    base = None if protocol.base_instruction is None else protocol.bare_instruction
    return replace(
        protocol, calls=0, instruction=protocol.bare_instruction, base_instruction=base, shows_examples=False
    )


def check_bare(protocol: Protocol, instruction: str | None, examples: int = 0) -> None:
    """Raises BadInput for a prompt that would name the tool that is switched off."""
    written = protocol.write_call("")
    named = next((tag for tag in protocol.tags if tag in written and tag in (instruction or "")), None)
    require(named is None, "env.instruction", instruction, f'null, "" or a text without {named}: env.tools is false')
    require(examples == 0, "env.demonstrations.count", examples, "0: examples use the tool, and env.tools is false")
