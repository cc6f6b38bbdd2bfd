"""Writes the reference's texts into fixtures/prompts/constructs.json.

    python tests/parity/prompts/constructs.py

The file has one small template for each thing that published templates do, and one conversation. To add a template, add
an object with the field `template`, then run this script.
"""

import json

import jinja2
import transformers
from transformers.utils import chat_template_utils

from chat_templates import HOME, FixedClock

TOKENS = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}


def rendered(template: str, conversation: dict) -> dict[str, str]:
    """The text, or the error: the template's own message, or the empty string for any other error."""
    try:
        (text,), _ = chat_template_utils.render_jinja_template(
            [conversation["messages"]],
            tools=conversation["tools"],
            chat_template=template,
            add_generation_prompt=conversation["add_generation_prompt"],
            **TOKENS,
            **conversation["variables"],
        )
    except jinja2.exceptions.TemplateSyntaxError:
        raise
    except jinja2.exceptions.UndefinedError:
        return {"error": ""}
    except jinja2.exceptions.TemplateError as error:
        return {"error": str(error.message)}
    except TypeError:
        return {"error": ""}
    return {"text": text}


def main() -> None:
    """Writes the fixture."""
    chat_template_utils.datetime = FixedClock
    file = HOME / "constructs.json"
    made = json.loads(file.read_text())
    made["transformers"], made["jinja2"] = transformers.__version__, jinja2.__version__
    conversation = made["conversation"]
    templates = [case["template"] for case in made["cases"]]
    made["cases"] = [{"template": template, **rendered(template, conversation)} for template in templates]
    file.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
