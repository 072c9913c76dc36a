"""The documents of the tasks: twelve records with metadata, and three text files."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict


class Record(TypedDict):
    id: str
    text: str
    year: int
    topic: str


RECORDS: list[Record] = [
    {
        "id": "yeast",
        "text": "Yeast eats the sugars in flour and gives off gas, which makes the loaf swell before it is baked.",
        "year": 2022,
        "topic": "bread",
    },
    {
        "id": "sourdough",
        "text": "A sourdough starter is flour and water in which wild yeast and bacteria live; it makes bread rise.",
        "year": 2018,
        "topic": "bread",
    },
    {
        "id": "oven",
        "text": "A hot stone and steam in the first ten minutes give bread a thin and shiny crust.",
        "year": 2021,
        "topic": "bread",
    },
    {
        "id": "rye",
        "text": "Rye has little gluten, so a rye loaf is dense and stays moist for a week.",
        "year": 2016,
        "topic": "bread",
    },
    {
        "id": "loom",
        "text": "A loom holds the warp threads under tension while the weft is passed between them.",
        "year": 2019,
        "topic": "cloth",
    },
    {
        "id": "jacquard",
        "text": "The Jacquard machine reads punched cards to lift single warp threads and weave a pattern.",
        "year": 2020,
        "topic": "cloth",
    },
    {
        "id": "dye",
        "text": "Indigo is a blue dye for cotton; it has to be reduced before it sticks to the fibre.",
        "year": 2023,
        "topic": "cloth",
    },
    {
        "id": "manual",
        "text": "Knitting machine: error XR-7741 means that the carriage is blocked by a bent needle.",
        "year": 2021,
        "topic": "cloth",
    },
    {
        "id": "tides",
        "text": "The moon pulls at the oceans, and the water rises on two sides of the earth.",
        "year": 2017,
        "topic": "sky",
    },
    {
        "id": "comet",
        "text": "A comet is a ball of ice and dust whose tail always points away from the sun.",
        "year": 2020,
        "topic": "sky",
    },
    {
        "id": "parallax",
        "text": "The distance of a near star is measured by its shift against far stars within half a year.",
        "year": 2015,
        "topic": "sky",
    },
    {
        "id": "eclipse",
        "text": "The moon covers the sun for some minutes in a narrow band of the earth.",
        "year": 2024,
        "topic": "sky",
    },
]

FILES = {
    "bees.txt": "Bees dance to tell the hive where flowers are.\n",
    "tools/chisel.txt": "A chisel is sharpened on a flat stone with water.\n",
    "tools/saw.txt": "A saw cuts on the push or on the pull.\n",
}


def write_files(folder: Path) -> None:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
