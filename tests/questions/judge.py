"""Says which answers to the questions of questions.json are right.

Usage: judge.py ANSWERS.json (a list of [FILE, TEXT]: the file of a question, what was answered)

Prints a JSON list of true and false. The judge is that of `make eval-model`, which writes the model's card: a question
outside the domain is rightly met with "I don't know". Needs the packages of tests/requirements.txt.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "models/demo/recipe"))

from demo_recipe.domain import Turn  # noqa: E402
from demo_recipe.evaluate import words  # noqa: E402


def is_right(question: dict, text: str) -> bool:
    if question["topic"] == "unknown":
        return words.declines(text)
    return words.right(Turn(question["topic"], question["text"], question["answer"], tuple(question["key"])), text)


def main() -> None:
    questions = {question["file"]: question for question in json.loads((HERE / "questions.json").read_text())}
    print(
        json.dumps(
            [is_right(questions[file], text) for file, text in json.loads(pathlib.Path(sys.argv[1]).read_text())]
        )
    )


if __name__ == "__main__":
    main()
