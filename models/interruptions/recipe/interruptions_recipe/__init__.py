"""The recipe of the interruption model. It shares Kokoro, texts and augmentation with the other recipes."""

import sys
from pathlib import Path

for _recipe in ("demo/recipe", "turns/recipe"):
    sys.path.append(str(Path(__file__).parents[3] / _recipe))
