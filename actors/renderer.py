"""Messages <-> tokens: the only owner of tokenising.

A conversation is rendered once, at its start. After that what the model sampled stays as it was sampled, and what the
environment says is rendered alone (`delta_ids`) and appended: history is never rendered again.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlsys.errors import BadInput
from rlsys.types import Completion, Message, TurnStop

# For tokenizers without a chat template (base models): plain text, one message a line.
PLAIN_TEMPLATE = "{{ bos_token or '' }}{% for message in messages %}{{ message.content }}\n{% endfor %}"
_MARK = "\u241fassistant\u241f"


class ChatRenderer:
    def __init__(self, model_path: str) -> None:
        """Loads the tokenizer of a hub name or local folder. Raises BadInput when there is none."""
        from transformers import AutoTokenizer

        try:
            self.tokenizer = AutoTokenizer.from_pretrained(model_path)
        except Exception as error:  # transformers raises a dozen kinds for one cause: no usable tokenizer there
            reason = str(error).strip().split("\n")[0][:200]
            raise BadInput(f"model.path={model_path!r}: no tokenizer can be loaded from it ({reason})") from error
        if self.tokenizer.chat_template is None:
            self.tokenizer.chat_template = PLAIN_TEMPLATE
        self._deltas: dict[tuple[str, str], tuple[int, ...]] = {}

    def _render(self, messages: Sequence[Message], *, open_turn: bool) -> str:
        chat = [{"role": message.role, "content": message.content} for message in messages]
        text = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=open_turn)
        assert isinstance(text, str)
        return text

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, token_ids: Sequence[int]) -> str:
        text = self.tokenizer.decode(list(token_ids), skip_special_tokens=False)
        assert isinstance(text, str)
        return text

    def prompt_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The first context: the prompt, and the opening of the model's turn."""
        return self.encode(self._render(messages, open_turn=True))

    def delta_ids(self, completion: Completion, reply: Message) -> tuple[int, ...]:
        """The tokens between a completion and the next one: the end of the model's turn, the reply, a new opening."""
        delta = self._delta(reply)
        # Sampled already when the model ended its turn itself, with this or another of its end tokens.
        return delta[1:] if completion.stop is TurnStop.EOS and completion.token_ids[-1:] == delta[:1] else delta

    def _delta(self, reply: Message) -> tuple[int, ...]:
        key = (reply.role, reply.content)
        if key not in self._deltas:
            if len(self._deltas) > 4096:
                self._deltas.clear()
            chat = [Message(role="user", content="."), Message(role="assistant", content=_MARK), reply]
            before, mark, after = self._render(chat, open_turn=True).partition(_MARK)
            if not mark:
                raise BadInput("the tokenizer's chat template drops assistant messages from history: it cannot be used")
            self._deltas[key] = self.encode(after)
        return self._deltas[key]

    def demonstration(self, messages: Sequence[Message], num_prompt: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(token_ids, loss_mask) of a worked episode, token for token what a rollout of it would have produced.

        messages[:num_prompt] is the prompt; then assistant and environment messages in turn.
        """
        ids = list(self.prompt_ids(messages[:num_prompt]))
        mask = [0] * len(ids)
        for message in messages[num_prompt:]:
            new = self.encode(message.content) if message.role == "assistant" else self._delta(message)
            ids += new
            mask += [int(message.role == "assistant")] * len(new)
        return tuple(ids), tuple(mask)
