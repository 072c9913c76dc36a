"""Stemming of languages other than English, by the Snowball algorithms. An index names its language; texts do not.

Stems are written into the index and must be met again by later queries and deletes, so an index also remembers which
version of the algorithms made them: see `plait.text.fts_table`.
"""

from __future__ import annotations

import importlib
import re
import threading
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache

from plait.errors import ConfigError

# Codes of ISO 639-1, except where there is none, and what Snowball calls the language.
STEMMED = {
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
# Not a language that an index names: its full text has English stems without being told.
ENGLISH = {"en": "english"}
# What an index does without being told: English is stemmed, and scripts without spaces are cut into pairs.
BY_DEFAULT = ("en", "ja", "km", "ko", "lo", "my", "th", "zh")

# Letters and digits with the marks that these languages write on them; \w leaves marks out.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0b82\u0bbe-\u0bcd\u0bd7"
)
_WORD = f"(?:[^\\W_]|[{_MARKS}])+"
# The small letters of I and İ are ı and i in Turkish alone; both end as i, for names are often typed without the dot.
_TURKISH_CAPITALS = str.maketrans({"I": "ı", "İ": "i"})
_KEPT_STEMS = 1 << 16
_LONGEST = 64  # characters; what is longer is no word of a language

Stem = Callable[[str], str]


def language_of(given: str | None) -> str | None:
    """The language to stem, or None where the default analysis serves it. Takes de, DE and de-AT."""
    if given is None:
        return None
    if not isinstance(given, str):
        raise ConfigError(f"language is {given!r}; it must be a code such as 'de'")
    code = re.split(r"[-_]", given.strip().lower())[0]
    if code in STEMMED:
        return code
    if code in BY_DEFAULT:
        return None
    raise ConfigError(
        f"there is no stemmer for the language {given!r}; leave language out, which suits any language, or choose one "
        f"of {', '.join(sorted([*STEMMED, *BY_DEFAULT]))}"
    )


def stem_word(word: str, language: str) -> str:
    """The stem of one word, of English as well."""
    return _stemmer(language)(word)


def stem_words(text: str, language: str) -> str:
    """The text with each of its words in lower case and stemmed; all else stays where it is."""
    stem = _stemmer(language)
    return re.sub(_WORD, lambda found: stem(found[0]), text)


@cache
def _stemmer(language: str) -> Stem:
    """Of one word. The written-out Python is asked for by name: an installed PyStemmer may have other stems."""
    name = (STEMMED | ENGLISH)[language]
    module = importlib.import_module(f"snowballstemmer.{name}_stemmer")
    algorithm = getattr(module, f"{name.title()}Stemmer")()
    turn = threading.Lock()  # the algorithm keeps the word it is at

    @lru_cache(_KEPT_STEMS)
    def stem(word: str) -> str:
        small = (word.translate(_TURKISH_CAPITALS) if language == "tr" else word).lower()
        if len(small) > _LONGEST:
            return small
        with turn:
            found: str = algorithm.stemWord(small) or small
        return found.replace("ı", "i") if language == "tr" else found

    return stem


@cache
def stemmer_version() -> str:
    """What the stems of a text depend on besides its language: the algorithms, and which characters are letters."""
    from importlib.metadata import version

    return f"snowball {version('snowballstemmer')}, unicode {unicodedata.unidata_version}"
