"""Words of formant synthesisers: espeak-ng in many languages and voices, and flite. They add languages and mouths at little cost."""

from __future__ import annotations

import io
import random
import subprocess
import wave
from pathlib import Path

import numpy as np
from scipy.signal import resample_poly

from . import spoken, voices

# Each language: backchannels, then commands. Portuguese and Hindi are judged alone.
TEXTS = {
    "en-us": ("yeah|okay|right|sure|uh huh|mm hmm|I see|got it|yes|oh|all right|exactly|of course|mm", "stop|wait|no|hold on|hang on|stop it|enough|cancel|pause|quiet|no no no|wait a second"),
    "en-gb": ("yeah|okay|right|sure|uh huh|I see|yes|oh|lovely|quite|indeed", "stop|wait|no|hold on|hang on|stop that|enough|pause|be quiet|no no"),
    "es": ("ajá|sí|vale|claro|ya|exacto|entiendo|bueno|mm|de acuerdo", "para|espera|no|alto|basta|un momento|detente|no no no|oye|cállate"),
    "fr-fr": ("oui|ouais|d'accord|bien sûr|exactement|je vois|ah oui|hum|voilà", "stop|attends|attendez|non|arrête|un instant|silence|non non|pardon"),
    "it": ("sì|certo|esatto|capito|va bene|okay|già|ah|mm", "ferma|aspetta|no|basta|un attimo|fermati|scusa|stop"),
    "de": ("ja|genau|okay|mhm|aha|stimmt|klar|ach so|gut|richtig", "stopp|warte|nein|halt|moment|hör auf|genug|nein nein|ruhe"),
    "nl": ("ja|precies|oké|goed|mm|natuurlijk|juist", "stop|wacht|nee|hou op|genoeg|een moment"),
    "pl": ("tak|jasne|dobrze|no|aha|rozumiem|mhm", "stop|czekaj|nie|przestań|dość|chwileczkę"),
    "ru": ("да|ага|угу|хорошо|понятно|ясно|конечно|так", "стоп|подожди|нет|хватит|погоди|минутку|нет нет"),
    "sv": ("ja|jo|precis|okej|mm|just det|visst", "stopp|vänta|nej|sluta|ett ögonblick"),
    "ja": ("はい|うん|ええ|なるほど|そうですね|へえ", "まって|とめて|いや|ちがう|ちょっと まって|だめ|ストップ"),
    "cmn-latn-pinyin": ("dui4|hao3|hao3 de5|xing2|ming2 bai2|o4|shi4", "ting2|deng3 yi2 xia4|bu4|bu4 dui4|deng3 deng3|bie2 shuo1 le5"),
    "tr": ("evet|tamam|hı hı|anladım|tabii", "dur|bekle|hayır|yeter|bir dakika"),
    "id": ("ya|oke|baik|benar|he em", "berhenti|tunggu|tidak|cukup|sebentar"),
}  # fmt: skip
VARIANTS = [f"m{at}" for at in range(1, 9)] + [f"f{at}" for at in range(1, 6)] + ["klatt", "klatt2", "klatt3", "croak"]
FLITE = ("awb", "rms", "slt", "kal16")


def _wave(data: bytes) -> np.ndarray:
    with wave.open(io.BytesIO(data)) as file:
        rate, sound = file.getframerate(), np.frombuffer(file.readframes(1 << 24), "<i2").astype(np.float32) / 32768.0
    return voices.trimmed(resample_poly(sound, spoken.RATE, rate).astype(np.float32))


def _espeak(text: str, voice: str, pitch: int, speed: int) -> np.ndarray:
    command = ["espeak-ng", "-v", voice, "-p", str(pitch), "-s", str(speed), "--stdin", "--stdout"]
    answer = subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout
    # Its header says that the length is unknown.
    return _wave(answer[:40] + (len(answer) - 44).to_bytes(4, "little") + answer[44:])


def _flite(text: str, voice: str, work: Path, stretch: float) -> np.ndarray:
    path = work / "flite.wav"
    command = ["flite", "-voice", voice, "--setf", f"duration_stretch={stretch:.2f}", "-t", text, "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return _wave(path.read_bytes())


def drawn(number: int) -> tuple[random.Random, str, str, str]:
    """(random numbers that follow, kind, language, word) of the word with this number."""
    r = random.Random(f"synthesised {number}")
    kind = r.choice(("backchannel", "command"))
    language = r.choice(list(TEXTS))
    return r, kind, language, r.choice(TEXTS[language][kind == "command"].split("|"))


def speak(work: Path, count: int) -> None:
    """Speaks `count` random words that train; a word that exists is kept."""
    folder = work / "train"
    folder.mkdir(exist_ok=True)
    for number in range(count):
        path = folder / f"synthesised-{number:05}.npz"
        if path.exists():
            continue
        r, kind, language, word = drawn(number)
        text = word + r.choice("!!." if kind == "command" else ".,?!")
        if language.startswith("en") and r.random() < 0.3:
            voice = f"flite+{r.choice(FLITE)}"
            sound = _flite(text, voice.removeprefix("flite+"), work, r.uniform(0.7, 1.2))
        else:
            voice = f"{language}+{r.choice(VARIANTS)}"
            sound = _espeak(text, voice, r.randint(10, 95), r.randint(140, 260))
        if len(sound) > spoken.RATE // 8:
            spoken.keep(path, sound[: spoken.LONGEST], voice=voice, kind=kind)
