"""Stemming by the Snowball algorithms. The language is a property of the index, not of single texts.

Later queries and deletes must produce the same stems as the index has, so the index also stores the version of the
algorithms: see `plait.text.fts_table`.
"""

from __future__ import annotations

import importlib
import re
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache

from plait.checks import shown
from plait.errors import ConfigError
from plait.locks import ForkSafeLock

# ISO 639-1 code to Snowball's name of the language; English is separate, because SQLite stems it.
STEMMERS = {
    "ar": "arabic",
    "ca": "catalan",
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "eo": "esperanto",
    "es": "spanish",
    "et": "estonian",
    "eu": "basque",
    "fa": "persian",
    "fi": "finnish",
    "fr": "french",
    "ga": "irish",
    "hi": "hindi",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "it": "italian",
    "lt": "lithuanian",
    "ne": "nepali",
    "nl": "dutch",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "st": "sesotho",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "yi": "yiddish",
}
ENGLISH_STEMMER = {"en": "english"}
# Languages that the default analysis serves: English is stemmed, and scripts without spaces become pairs of characters.
DEFAULT_LANGUAGES = ("en", "ja", "km", "ko", "lo", "my", "th", "zh")

# The combining marks of these languages, which \w does not match.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0b82\u0bbe-\u0bcd\u0bd7"
)
_WORD = f"(?:[^\\W_]|[{_MARKS}])+"
# In Turkish, I and İ are the capitals of ı and i. All four become i, because names are often typed without the dot.
_TURKISH_CAPITALS = str.maketrans({"I": "ı", "İ": "i"})
_MAX_CACHED_STEMS = 1 << 16
_MAX_WORD = 64  # characters; a longer string is not a word

Stem = Callable[[str], str]


def stemming_language(given: str | None) -> str | None:
    """The code of the language to stem, or None if the default analysis serves it. Accepts de, DE and de-AT."""
    if given is None:
        return None
    if not isinstance(given, str):
        raise ConfigError(f"language is {shown(given)}; it must be a language code such as 'de'")
    code = re.split(r"[-_]", given.strip().lower())[0]
    if code in STEMMERS:
        return code
    if code in DEFAULT_LANGUAGES:
        return None
    raise ConfigError(
        f"there is no stemmer for the language {given!r}; leave language out (the default suits any language), or "
        f"choose one of {', '.join(sorted([*STEMMERS, *DEFAULT_LANGUAGES]))}"
    )


def stem_word(word: str, language: str) -> str:
    """The stem of one word; the language may also be English."""
    return _stemmer(language)(word)


def stem_words(text: str, language: str) -> str:
    """The text with every word in lower case and stemmed; the characters between words stay."""
    stem = _stemmer(language)
    return re.sub(_WORD, lambda match: stem(match[0]), text)


@cache
def _stemmer(language: str) -> Stem:
    """The stemmer for single words. Imports the pure-Python algorithm: an installed PyStemmer may give other stems."""
    name = (STEMMERS | ENGLISH_STEMMER)[language]
    module = importlib.import_module(f"snowballstemmer.{name}_stemmer")
    algorithm = getattr(module, f"{name.title()}Stemmer")()
    lock = ForkSafeLock()  # the algorithm object holds the current word

    @lru_cache(_MAX_CACHED_STEMS)
    def stem(word: str) -> str:
        lower = (word.translate(_TURKISH_CAPITALS) if language == "tr" else word).lower()
        if len(lower) > _MAX_WORD:
            return lower
        with lock:
            stemmed: str = algorithm.stemWord(lower) or lower
        return stemmed.replace("ı", "i") if language == "tr" else stemmed

    return stem


@cache
def stemmer_version() -> str:
    """All that stems depend on besides the language: the algorithms, and the characters that are letters."""
    from importlib.metadata import version

    return f"snowball {version('snowballstemmer')}, unicode {unicodedata.unidata_version}"
