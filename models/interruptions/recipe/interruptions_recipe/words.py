"""Backchannels and commands of eight languages, in Kokoro's symbols.

The symbols are written by hand: they are a word or two, and the voices need no dictionary of each language.
Of Portuguese and Hindi training hears nothing: they are judged alone.
"""

from __future__ import annotations

import unicodedata

# Kokoro's numbers of its symbols; demo_recipe.phonemes has those of English alone.
_SYMBOLS = (
    (1, ';:,.!?'), (16, " \u0303ʣʥʦʨᵝ"), (24, "AI"), (31, "O"), (33, "Q"), (35, "ST"), (39, "W"), (41, "Yᵊabcdef"),
    (50, "hijklmnopqrstuvwxyzɑɐɒæ"), (75, "βɔɕç"), (80, "ɖðʤə"), (85, "ɚɛɜ"), (90, "ɟ"), (92, "ɡ"), (99, "ɥ"),
    (101, "ɨɪʝ"), (110, "ɯɰŋɳɲɴøɸ"), (119, "θœ"), (123, "ɹ"), (125, "ɾɻ"), (128, "ʁɽʂʃʈʧ"), (135, "ʊʋ"), (138, "ʌɣɤ"),
    (142, "χʎ"), (147, "ʒʔ"), (156, "ˈˌː"), (162, "ʰ"), (164, "ʲ"), (169, "↓"), (171, "→↗↘"), (177, "ᵻ"),
)  # fmt: skip
IDS = {symbol: first + at for first, symbols in _SYMBOLS for at, symbol in enumerate(symbols)}

BACKCHANNELS = {
    "en": "mhˈm|mhˈm|ˈm|əhˈʌ|jˈɛə|jˈæ|ˌOkˈA|ɹˈIt|ʃˈʊɹ|ˌI sˈi|ɡˈɑt ɪt|jˈɛs|jˈʌp|ˈO|ˌɔlɹˈIt|ɪɡzˈæktli|əv kˈɔɹs|tɹˈu",
    "es": "mhˈm|axˈa|sˈi|bˈale|klˈaɾo|jˈa|eksˈakto|entjˈendo|bwˈeno",
    "fr": "mhˈm|wˈi|wˈɛ|dakˈɔʁ|bjɛ̃ sˈyʁ|ɛɡzaktəmˈɑ̃|ʒə vwˈa|a wˈi",
    "it": "mhˈm|sˈi|ʧˈɛɾto|ezˈatːo|kapˈito|va bˈɛne|okˈɛi|ʤˈa",
    "ja": "hˈai|ˈɯn|ˈeː|naɾɯhˈodo|soːdesˈɯne|hˈeː|sˈoʔka|fˈɯːn",
    "zh": "ˈən↘|tˈwei↘|xˈaʊ↓|xˈaʊ↓tə|mˈiŋ↗pai|ˈɔ↘|ɕˈiŋ↗|mˈei↗tswo↘",
    "pt": "ũhˈũ|sˈĩ|tˈa|sˈɛɾtʊ|klˈaɾʊ|ˈisʊ",
    "hi": "hˈm|hˈãː|ˈəʧʰːaː|ʈʰˈiːk hˈɛː|ʤˈiː|səhˈiː",
}
COMMANDS = {
    "en": "stˈɑp|wˈAt|nˈO|hˈOld ˌɑn|hˈæŋ ˌɑn|stˈɑp ɪt|ɪnˈʌf|kˈænsəl|pˈɔz|kwˈIət|nˈO nˈO nˈO|wˈAt ə sˈɛkənd|hˈAʔ",
    "es": "pˈaɾa|espˈeɾa|nˈo|ˈalto|bˈasta|ˌun momˈento|detˈente|nˈo nˈo nˈo|ˈoje",
    "fr": "stˈɔp|atˈɑ̃|atɑ̃dˈe|nˈɔ̃|aʁˈɛt|œ̃n ɛ̃stˈɑ̃|silˈɑ̃s|nˈɔ̃ nˈɔ̃",
    "it": "fˈeɾma|aspˈɛtːa|nˈɔ|bˈasta|un ˈatːimo|fˈeɾmati|skˈuza|stˈɔp",
    "ja": "mˈaʔte|tomˈete|ʨˈoʔto mˈaʔte|ijˈa|ʨiɡˈaɯ|sɯtˈoʔpɯ|damˈe",
    "zh": "tʰˈiŋ↗|tˈəŋ↓ji↗ɕja↘|pˈu↘|pˈu↗twei↘|pjˈe↗ʂwo→lə|tˈəŋ↓təŋ|tˈa↓ʈʂu↘",
    "pt": "pˈaɾa|espˈɛɾə|nˈɐ̃ʊ̃|ʃˈeɡə|ũ momˈẽtʊ|espˈɛɾəˈi",
    "hi": "ɾˈʊkoː|nəhˈĩː|bˈəs|ˈeːk mˈɪnəʈ|ʈʰˈɛhɾoː|sˈʊnoː",
}
# Voices of Kokoro that no training hears, by the language that they speak.
JUDGED = {
    "en": ("af_sarah", "af_river", "am_puck", "am_onyx", "bf_isabella", "bm_daniel"),
    "es": ("ef_dora",),
    "fr": ("ff_siwis",),
    "it": ("im_nicola",),
    "ja": ("jf_nezumi", "jm_kumo"),
    "zh": ("zf_xiaoyi", "zm_yunyang"),
    "pt": ("pf_dora", "pm_alex"),
    "hi": ("hf_beta", "hm_psi"),
}
# Voices on which thresholds are chosen; training does not hear them either.
CHOOSING = ("af_bella", "am_michael", "bm_lewis", "bf_lily", "em_alex", "if_sara", "jf_tebukuro", "zm_yunxi")


def symbols(text: str) -> str:
    """Symbols of a word as `IDS` has them."""
    said = unicodedata.normalize("NFD", text).replace("c\u0327", "ç")
    missing = [symbol for symbol in said if symbol not in IDS]
    if missing:
        raise ValueError(f"{text!r} has symbols that the voice does not know: {missing}")
    return said


def listed(table: dict[str, str], language: str) -> list[str]:
    """The words of a language."""
    return [symbols(word) for word in table[language].split("|")]
