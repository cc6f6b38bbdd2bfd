"""The recipe of the turn-detection model. It shares Kokoro, phonemes and augmentation with the demo model's recipe."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "demo/recipe"))
