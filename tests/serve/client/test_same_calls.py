"""One body of calls for `Index`, `Client` and `AsyncClient`: over a thousand documents they give equal answers."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plait
from encoders import WordEncoder
from plait.errors import PlaitError
from plait.index import open_index
from plait.serve.config import IndexConfig, ServeConfig
from plait.serve.runtime import hosts, writes
from serve.listening import listening

N_DOCUMENTS = 1000
WORDS = [f"word{number}" for number in range(200)]
QUERY = "word1 word2 word3"
ENCODER = WordEncoder(terms=500)
MODES = ["hybrid", "dense", "sparse", "multi", "bm25", "exhaustive", "plaid", "xtr", "warp", "bm25-then-multi"]


def documents(n_documents: int = N_DOCUMENTS) -> list[dict[str, Any]]:
    """Texts of one to three passages; one document in seven has no year."""
    rng = random.Random(0)
    made: list[dict[str, Any]] = []
    for number in range(n_documents):
        document: dict[str, Any] = {
            "id": f"d{number}" if number % 10 else f"a/b c?{number}",
            "text": " ".join(rng.choices(WORDS, k=rng.randint(5, 120))),
            "title": f"Title {number}" if number % 4 == 0 else "",
            "tags": rng.sample(["red", "green", "blue"], 2),
            "number": number,
            "author": {"name": f"author {number % 5}"},
        }
        if number % 7:
            document["year"] = 2000 + number % 25
        made.append(document)
    return made


def open_with_words(path: str | Path, *, encoder: Any = None, **options: Any) -> plait.Index:
    """`open_index` of a server whose model is the small encoder of the tests."""
    options.pop("model", None)
    return open_index(path, encoder=encoder or ENCODER, **options)


class Blocking:
    """An AsyncClient whose calls wait for their answers, so that the same body can use it."""

    def __init__(self, client: plait.AsyncClient, loop: asyncio.AbstractEventLoop) -> None:
        self._client, self._loop = client, loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *arguments, **keywords: self._loop.run_until_complete(method(*arguments, **keywords))

    def __len__(self) -> int:
        return self._loop.run_until_complete(self._client.count())

    def __contains__(self, id: str) -> bool:
        return self._loop.run_until_complete(self._client.get([id])) != [None]

    def iterate(self, *arguments: Any, **keywords: Any) -> list[list[plait.Document]]:
        async def collect() -> list[list[plait.Document]]:
            return [batch async for batch in self._client.iterate(*arguments, **keywords)]

        return self._loop.run_until_complete(collect())


@contextmanager
def blocking(url: str) -> Iterator[Blocking]:
    loop = asyncio.new_event_loop()
    client = plait.AsyncClient(url, index="third")
    try:
        yield Blocking(client, loop)
    finally:
        loop.run_until_complete(client.close())
        loop.close()


def searches(index: Any) -> Iterator[tuple[str, Any]]:
    """The name of each call, and its answer."""
    for mode in MODES:
        yield f"mode {mode}", index.search(QUERY, 7, mode=mode)
    yield from options(index)


def options(index: Any) -> Iterator[tuple[str, Any]]:
    yield "many", index.search_many([QUERY, "word9", "no such words"], 5)
    yield "filter", index.search(QUERY, 20, filter="year >= 2010 and 'red' in tags")
    yield "nested filter", index.search(QUERY, 20, filter='author.name = "author 3" and not year')
    yield "offset", index.search(QUERY, 5, offset=12)
    yield "min_score", index.search(QUERY, 50, mode="dense", min_score=0.5)
    yield "automatic min_score", index.search(QUERY, 50, min_score="auto")
    yield "sort", index.search(QUERY, 15, sort="-year")
    yield "group_by", index.search(QUERY, 5, group_by="author.name", window=50)
    yield "passages", index.search(QUERY, 5, passages=3)
    yield "highlight", index.search(QUERY, 5, highlight=True)
    yield "explain of a search", index.search(QUERY, 3, explain=True)
    yield "exact", index.search(QUERY, 5, exact=True)
    yield "candidates", index.search(QUERY, 5, candidates=["d5", "d1", "a/b c?20"])
    yield "params", index.search(QUERY, 5, mode="dense", params=plait.DenseParams(n_probe=4))
    yield "weights", index.search(QUERY, 5, params=plait.HybridParams(dense=1.0, bm25=2.0))
    yield "phrase", index.search('"word1" -word2', 5, mode="bm25")
    yield "no syntax", index.search('"word1" -word2', 5, mode="bm25", syntax=False)
    yield "similar to a document", index.similar("d5", 5)
    yield "similar to a text", index.similar(text="word7 word8", k=5, filter="year > 2005")
    embeddings = plait.Embeddings(dense=np.full((1, 16), 0.25, np.float32))
    yield "similar to embeddings", index.similar(embeddings=embeddings, k=5, mode="dense")
    yield "explain", index.explain(QUERY, "d77")
    yield "facets", index.facets("tags")
    yield "facets of a query", index.facets("year", QUERY, k=5, window=200)


def reads(index: Any) -> Iterator[tuple[str, Any]]:
    yield "len", len(index)
    yield "in", ["d1" in index, "a/b c?10" in index, "nothing" in index]
    yield "get", index.get(["d2", "nothing", "a/b c?10", "d2"])
    yield "count", [index.count(), index.count("year >= 2010"), index.count("'red' in tags or not year")]
    yield "iterate", [list(batch) for batch in index.iterate(300)]
    yield "iterate with a filter", [list(batch) for batch in index.iterate(100, filter="year = 2003")]


def writing(index: Any) -> Iterator[tuple[str, Any]]:
    """What writes give, and what is there afterwards."""
    new = [{"id": f"new{number}", "text": f"word1 fresh{number}", "year": 3000} for number in range(30)]
    for name, given in [("add", new), ("add again", new[:10]), ("replace", [{"id": "new3", "text": "word1 other"}])]:
        report = index.add(given)
        yield name, (report.added, report.updated, report.unchanged, report.passages, list(report.repeated))
    yield "update_metadata", index.update_metadata({"d1": {"year": 4000, "extra": [1, "x"]}, "d2": {"year": None}})
    yield "replaced metadata", index.update_metadata({"d4": {"only": True}}, replace=True)
    yield "delete", index.delete(["d3", "nothing", "a/b c?10"])
    yield "delete by filter", index.delete(filter="year = 3000 and number > 5 or year = 2001")
    yield "nothing to delete", index.delete([])
    index.refresh()


def refused(index: Any) -> Iterator[tuple[str, Any]]:
    """The classes and messages of errors."""
    calls: dict[str, Callable[[], Any]] = {
        "bad filter": lambda: index.search(QUERY, filter="year >="),
        "bad mode": lambda: index.search(QUERY, mode="nothing"),
        "bad k": lambda: index.search(QUERY, 0),
        "unknown candidate": lambda: index.search(QUERY, candidates=["nothing"]),
        "unknown document": lambda: index.update_metadata({"nothing": {"year": 1}}),
        "bad document": lambda: index.add([{"id": "x"}]),
        "delete without argument": lambda: index.delete(),
        "filter of delete": lambda: index.delete(filter="year >="),
        "count": lambda: index.count("(("),
    }
    for name, call in calls.items():
        with pytest.raises(PlaitError) as raised:
            call()
        yield name, type(raised.value)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("same") / "built"
    with plait.open(path, create=True, encoder=ENCODER) as index:
        index.add(documents(), commit_every=400)
        index.compact()
    return path


@pytest.mark.parametrize("body", [searches, reads, refused, writing])
def test_the_same_calls_give_the_same_answers(
    built: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: Callable[[Any], Iterator[tuple[str, Any]]],
) -> None:
    for module in (hosts, writes):
        monkeypatch.setattr(module, "open_index", open_with_words)
    folders = {name: Path(shutil.copytree(built, tmp_path / name)) for name in ("first", "second", "third")}
    config = ServeConfig(
        indexes=tuple(IndexConfig(name=name, path=folders[name]) for name in ("second", "third")),
        state_dir=tmp_path / "state",
        mcp=False,
    )
    with ExitStack() as stack:
        url = stack.enter_context(listening(config))
        indexes = {
            "index": stack.enter_context(plait.open(folders["first"], encoder=ENCODER)),
            "client": stack.enter_context(plait.Client(url, index="second")),
            "async client": stack.enter_context(blocking(url)),
        }
        bodies = [body] if body is not writing else [writing, reads, options]
        answers = {name: dict(one for part in bodies for one in part(index)) for name, index in indexes.items()}
    assert len(answers["index"]) > 5
    for name in ("client", "async client"):
        for call, expected in answers["index"].items():
            assert answers[name][call] == expected, f"{call} of the {name}"
