"""Texts that a graph is compared on where no collection is named: prose, questions, code, several scripts, nothing at
all, a single word, and one text that is longer than any model reads."""

from __future__ import annotations

QUERIES = (
    "why do leaves turn red in autumn",
    "tides",
    "What is the boiling point of water at 3,000 metres?",
    "who wrote the first dictionary of the English language",
    "¿Cuándo florecen los almendros?",
    "",
)
DOCUMENTS = (
    "Leaves turn red when a tree stops making chlorophyll; the sugar that is left in them is turned into anthocyanin.",
    "The moon pulls the water of the sea towards it, and the earth turns below: most coasts have two tides a day.",
    "Water boils at 100 °C by the sea. With each 300 metres of height it boils at 1 °C less, and eggs take longer.",
    "def median(values):\n    ordered = sorted(values)\n    return ordered[len(ordered) // 2]",
    "Samuel Johnson's dictionary of 1755 was not the first, but for a century and a half it was the one on the table.",
    "Die Mandelbäume blühen vor allen anderen, oft schon im Februar, und ein später Frost kostet die ganze Ernte.",
    "潮の満ち引きは、主に月の引力によって起こる。",
    "Приливы вызваны притяжением Луны и Солнца.",
    "... !!! ???",
    "tides",
    "",
)


def sample_documents() -> list[str]:
    """The documents, and one that has to be cut."""
    return [*DOCUMENTS, " ".join(DOCUMENTS) * 12]
