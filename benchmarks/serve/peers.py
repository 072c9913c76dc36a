"""Servers of other engines beside plait's, with the same passages, queries and dense vectors.

    python -m benchmarks.serve.peers --data wikipassages --work serve-bench --qdrant BIN --chroma BIN \\
        --lancedb PYTHON --txtai PYTHON

BIN is the server of the engine; PYTHON is the interpreter of an environment with the engine, FastAPI and uvicorn. All
speak HTTP on loopback, and one server runs at a time.

Vector search: the request has the vector of the query, so that encoding does not count; txtai, whose API takes texts
only, looks it up. For each server the cheapest setting is taken that finds `--recall` of the ten nearest passages,
then 64 clients search. Text search: by words, where the server has it; `found` is the share of the queries whose
passage is indexed that have it among the first ten. Answers have ids, scores and texts. Each peer fills its database
once, in `--work`.
"""

# ruff: noqa: ARG002 -- methods of one interface

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.machine import machine
from benchmarks.serve.build import Collection, add_arguments, build, collection_of, dense_vectors
from benchmarks.serve.load import Load, run_load
from benchmarks.serve.servers import Server, free_port, other_server, plait_server, post
from benchmarks.serve.summary import summarize, table

K = 10
N_CHECKED = 200  # queries whose answers are compared
PROGRAMS = Path(__file__).parent / "peer_servers"
UPLOAD = 1_000  # passages in one request


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """Passages and queries with their vectors, and the exact nearest passages of the first queries."""

    folder: Path  # with files for programs that read them
    ids: list[str]
    texts: list[str]
    rows: NDArray[np.float32]
    queries: list[str]
    query_rows: NDArray[np.float32]
    judged: dict[int, set[str]]  # for queries whose passage is indexed

    def nearest(self) -> list[set[str]]:
        scores = self.query_rows[:N_CHECKED] @ self.rows.T
        best = np.argpartition(-scores, K, axis=1)[:, :K]
        return [{self.ids[number] for number in row} for row in best]


def read_data(collection: Collection) -> Data:
    ids, rows, query_rows = dense_vectors(collection)
    by_id = {passage["id"]: passage["text"] for passage in collection.passages()}
    texts, queries = [by_id[id] for id in ids], collection.queries()
    (collection.vectors / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    (collection.vectors / "queries.json").write_text(json.dumps(queries), encoding="utf-8")
    judged = collection.judged(set(ids))
    return Data(collection.vectors, ids, texts, rows, queries, query_rows, judged)


class Peer(ABC):
    """A server: how it is filled, started and asked. Settings go from cheap to exact."""

    name: str
    settings: Sequence[int] = (0,)
    has_text = False

    @abstractmethod
    def fill(self, data: Data, folder: Path) -> None:
        """Makes the database of the server in a folder."""

    @abstractmethod
    def serve(self, data: Data, folder: Path, *, setting: int, by_text: bool) -> AbstractContextManager[Server]: ...

    @abstractmethod
    def path(self, *, by_text: bool) -> str: ...

    @abstractmethod
    def body(self, data: Data, query: int, *, setting: int, by_text: bool) -> object: ...

    @abstractmethod
    def ids(self, answer: Any) -> list[str]: ...


class Plait(Peer):
    name, settings, has_text = "plait", (0,), True

    def __init__(self, index: Path, workers: int) -> None:
        self._index, self._workers = index, workers

    def fill(self, data: Data, folder: Path) -> None:
        """The index is there."""

    def serve(self, data: Data, folder: Path, *, setting: int, by_text: bool) -> AbstractContextManager[Server]:
        return plait_server(self._index, workers=self._workers)

    def path(self, *, by_text: bool) -> str:
        return f"/v1/indexes/bench/{'search' if by_text else 'similar'}"

    def body(self, data: Data, query: int, *, setting: int, by_text: bool) -> object:
        if by_text:
            return {"query": data.queries[query], "mode": "bm25", "k": K}
        return {"embeddings": {"dense": floats(data.query_rows[query])}, "mode": "dense", "k": K}

    def ids(self, answer: Any) -> list[str]:
        return [hit["id"] for hit in answer["hits"]]


class Qdrant(Peer):
    name, settings, has_text = "Qdrant", (16, 32, 64, 128, 256, 512), True
    COLLECTION = "/collections/passages"

    def __init__(self, binary: Path) -> None:
        self._binary = binary.absolute()

    @contextmanager
    def serve(self, data: Data, folder: Path, *, setting: int, by_text: bool) -> Iterator[Server]:
        port = free_port()
        environment = {
            "QDRANT__SERVICE__HOST": "127.0.0.1",
            "QDRANT__SERVICE__HTTP_PORT": str(port),
            "QDRANT__SERVICE__GRPC_PORT": str(free_port()),
            "QDRANT__TELEMETRY_DISABLED": "true",
            "QDRANT__LOG_LEVEL": "WARN",
        }
        url = f"http://127.0.0.1:{port}"
        with other_server([str(self._binary)], url, "/readyz", folder=folder, environment=environment) as server:
            yield server

    def fill(self, data: Data, folder: Path) -> None:
        with self.serve(data, folder, setting=0, by_text=False) as server:
            settings = {
                "vectors": {"dense": {"size": data.rows.shape[1], "distance": "Dot"}},
                "sparse_vectors": {"words": {"modifier": "idf"}},
                "optimizers_config": {"indexing_threshold": 1_000},  # kB, so that every vector is in a graph
            }
            post(server.url + self.COLLECTION, settings, method="PUT")
            for numbers in uploads(len(data.ids)):
                points = [
                    {
                        "id": number,
                        "vector": {
                            "dense": floats(data.rows[number]),
                            "words": {"text": data.texts[number], "model": "qdrant/bm25"},
                        },
                        "payload": {"id": data.ids[number], "text": data.texts[number]},
                    }
                    for number in numbers
                ]
                post(f"{server.url}{self.COLLECTION}/points?wait=true", {"points": points}, method="PUT")
            while get(server.url + self.COLLECTION)["result"]["status"] != "green":
                time.sleep(1.0)

    def path(self, *, by_text: bool) -> str:
        return f"{self.COLLECTION}/points/query"

    def body(self, data: Data, query: int, *, setting: int, by_text: bool) -> object:
        common = {"limit": K, "with_payload": True}
        if by_text:
            return {"query": {"text": data.queries[query], "model": "qdrant/bm25"}, "using": "words", **common}
        return {
            "query": floats(data.query_rows[query]),
            "using": "dense",
            "params": {"hnsw_ef": setting},
            **common,
        }

    def ids(self, answer: Any) -> list[str]:
        return [point["payload"]["id"] for point in answer["result"]["points"]]


class Chroma(Peer):
    name, settings = "Chroma", (10, 20, 40, 80, 160, 320)
    BASE = "/api/v2/tenants/default_tenant/databases/default_database/collections"

    def __init__(self, binary: Path) -> None:
        self._binary, self._collection = binary.absolute(), ""

    @contextmanager
    def serve(self, data: Data, folder: Path, *, setting: int, by_text: bool) -> Iterator[Server]:
        port = free_port()
        command = [str(self._binary), "run", "--path", "database", "--host", "127.0.0.1", "--port", str(port)]
        url = f"http://127.0.0.1:{port}"
        with other_server(command, url, "/api/v2/heartbeat", folder=folder) as server:
            if (folder / "done").exists():
                self._collection = get(f"{url}{self.BASE}/passages")["id"]
                settings = {"new_configuration": {"hnsw": {"ef_search": setting}}}
                post(f"{url}{self.BASE}/{self._collection}", settings, method="PUT")
            yield server

    def fill(self, data: Data, folder: Path) -> None:
        with self.serve(data, folder, setting=0, by_text=False) as server:
            settings = {"name": "passages", "configuration": {"hnsw": {"space": "ip", "ef_search": 100}}}
            made: Any = post(server.url + self.BASE, settings)
            for numbers in uploads(len(data.ids)):
                body = {
                    "ids": [data.ids[number] for number in numbers],
                    "documents": [data.texts[number] for number in numbers],
                    "embeddings": [floats(data.rows[number]) for number in numbers],
                }
                post(f"{server.url}{self.BASE}/{made['id']}/add", body)

    def path(self, *, by_text: bool) -> str:
        return f"{self.BASE}/{self._collection}/query"

    def body(self, data: Data, query: int, *, setting: int, by_text: bool) -> object:
        vectors = [floats(data.query_rows[query])]
        return {"query_embeddings": vectors, "n_results": K, "include": ["documents", "distances"]}

    def ids(self, answer: Any) -> list[str]:
        ids: list[str] = answer["ids"][0]
        return ids


class PythonPeer(Peer):
    """An engine without a server of its own: one of the programs beside this file."""

    program: str

    def __init__(self, python: Path) -> None:
        self._python = python.absolute()

    def fill(self, data: Data, folder: Path) -> None:
        command = [str(self._python), str(PROGRAMS / f"{self.program}.py"), str(folder.absolute())]
        subprocess.run(command, check=True, env=self._environment(data, folder), cwd=PROGRAMS)

    def _environment(self, data: Data, folder: Path) -> dict[str, str]:
        return {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(PROGRAMS),
            "PEER_FOLDER": str(folder.absolute()),
            "PEER_VECTORS": str(data.folder.absolute()),
        }

    def _serve(self, data: Data, folder: Path, app: str, more: dict[str, str]) -> AbstractContextManager[Server]:
        port = free_port()
        command = [str(self._python), "-m", "uvicorn", app, "--port", str(port), "--log-level", "warning"]
        environment = {**self._environment(data, folder), **more}
        return other_server(
            command, f"http://127.0.0.1:{port}", "/openapi.json", folder=folder, environment=environment
        )


class LanceDb(PythonPeer):
    name, settings, has_text, program = "LanceDB", (4, 8, 16, 32, 64, 128), True, "lancedb_app"

    def serve(self, data: Data, folder: Path, *, setting: int, by_text: bool) -> AbstractContextManager[Server]:
        return self._serve(data, folder, "lancedb_app:app", {})

    def path(self, *, by_text: bool) -> str:
        return "/search"

    def body(self, data: Data, query: int, *, setting: int, by_text: bool) -> object:
        if by_text:
            return {"text": data.queries[query], "k": K}
        return {"vector": floats(data.query_rows[query]), "k": K, "n_probes": setting}

    def ids(self, answer: Any) -> list[str]:
        return [hit["id"] for hit in answer["hits"]]


class Txtai(PythonPeer):
    name, settings, has_text, program = "txtai", (4, 8, 16, 32, 64, 128), True, "txtai_app"

    def _environment(self, data: Data, folder: Path) -> dict[str, str]:
        return {**super()._environment(data, folder), "ALLOW_RESOLVE_TRANSFORM": "True"}

    def serve(self, data: Data, folder: Path, *, setting: int, by_text: bool) -> AbstractContextManager[Server]:
        name = "words" if by_text else "vectors"
        if not by_text:
            file = folder / name / "config.json"
            saved = {**json.loads(file.read_text(encoding="utf-8")), "faiss": {"nprobe": setting}}
            file.write_text(json.dumps(saved), encoding="utf-8")
        return self._serve(data, folder, "txtai.api:app", {"CONFIG": str((folder / f"{name}.yml").absolute())})

    def path(self, *, by_text: bool) -> str:
        return "/batchsearch"  # /search takes the query in the address

    def body(self, data: Data, query: int, *, setting: int, by_text: bool) -> object:
        return {"queries": [data.queries[query]], "limit": K}

    def ids(self, answer: Any) -> list[str]:
        return [hit["id"] for hit in answer[0]]


def floats(row: NDArray[np.float32]) -> list[float]:
    return [round(value, 6) for value in row.tolist()]


def uploads(n_passages: int) -> list[range]:
    return [range(begin, min(begin + UPLOAD, n_passages)) for begin in range(0, n_passages, UPLOAD)]


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.loads(answer.read())


def filled(peer: Peer, data: Data, folder: Path) -> None:
    """Fills the database of a peer unless that was done."""
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        began = time.monotonic()
        peer.fill(data, folder)
        (folder / "done").write_text(f"{time.monotonic() - began:.1f} s\n")


def measure(
    peer: Peer, data: Data, folder: Path, *, by_text: bool, recall: float, clients: int, seconds: float
) -> dict[str, Any]:
    """Finds the cheapest setting that is good enough, and measures its load."""
    truth = data.judged if by_text else dict(enumerate(data.nearest()))
    settings = (0,) if by_text else peer.settings
    quality, setting = 0.0, 0
    for setting in settings:
        with peer.serve(data, folder, setting=setting, by_text=by_text) as server:
            url = server.url + peer.path(by_text=by_text)
            shares = []
            for query, due in list(truth.items())[:N_CHECKED]:
                ids = peer.ids(post(url, peer.body(data, query, setting=setting, by_text=by_text)))
                shares.append(len(due & set(ids)) / len(due))
            quality = float(np.mean(shares))
            if quality < recall and setting != settings[-1]:
                continue
            bodies = [
                json.dumps(peer.body(data, query, setting=setting, by_text=by_text))
                for query in range(len(data.queries))
            ]
            load = Load(server.url, peer.path(by_text=by_text), bodies, min(5.0, seconds), clients)
            run_load(load)
            before = server.cpu_seconds()
            answers = run_load(Load(load.url, load.path, bodies, seconds, clients, first=len(bodies) // 2))
            summary = summarize(answers)
            cpu = 1000 * (server.cpu_seconds() - before) / max(1, len(answers.statuses))
            memory = server.resident_bytes()
            break
    return {
        "peer": peer.name,
        "setting": setting,
        "quality": quality,
        "load": asdict(summary),
        "cpu_ms": cpu,
        "memory": memory,
    }


def tables(results: Sequence[dict[str, Any]], *, by_text: bool) -> str:
    quality = "found@10" if by_text else "recall@10"
    header = ["server", "setting", quality, "requests/s", "p50 ms", "p95 ms", "p99 ms", "failed", "CPU ms", "MB"]
    rows: list[list[object]] = []
    for one in results:
        load = one["load"]
        numbers = [load[name] for name in ("rate", "p50", "p95", "p99", "n_failed")]
        setting = "default" if one["setting"] == 0 else one["setting"]
        rows.append([one["peer"], setting, f"{one['quality']:.3f}", *numbers, one["cpu_ms"], one["memory"] / 1e6])
    return table(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--qdrant", type=Path, help="the binary of the server")
    parser.add_argument("--chroma", type=Path, help="the command chroma of an environment with chromadb")
    parser.add_argument("--lancedb", type=Path, help="the Python of an environment with lancedb, fastapi, uvicorn")
    parser.add_argument("--txtai", type=Path, help="the Python of an environment with txtai[api]")
    parser.add_argument("--workers", type=int, default=1, help="of plait")
    parser.add_argument("--recall", type=float, default=0.95)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    collection = collection_of(options)
    build(collection)
    data = read_data(collection)
    peers: list[Peer] = [Plait(collection.index, options.workers)]
    makers: dict[str, Callable[[Path], Peer]] = {"qdrant": Qdrant, "chroma": Chroma, "lancedb": LanceDb, "txtai": Txtai}
    peers += [make(getattr(options, name)) for name, make in makers.items() if getattr(options, name) is not None]
    results: dict[str, list[dict[str, Any]]] = {"vectors": [], "text": []}
    failures = []
    for peer in peers:
        folder = collection.work / f"peer-{peer.name.lower()}-{collection.n_passages}-{collection.n_characters}"
        for kind in ("vectors", "text"):
            by_text = kind == "text"
            if by_text and not peer.has_text:
                continue
            try:
                filled(peer, data, folder)
                result = measure(
                    peer,
                    data,
                    folder,
                    by_text=by_text,
                    recall=options.recall,
                    clients=options.clients,
                    seconds=options.seconds,
                )
            except (SystemExit, OSError, KeyError, subprocess.CalledProcessError) as error:
                failures.append(f"{peer.name}, {kind}: {type(error).__name__}: {error}")
                print(failures[-1], file=sys.stderr, flush=True)
                continue
            results[kind].append(result)
            print(json.dumps(result), file=sys.stderr, flush=True)
    print(f"{len(data.ids):,} passages, {options.clients} clients, {options.seconds:g} s each\n\nVector search\n")
    print(tables(results["vectors"], by_text=False))
    print("\nText search by words\n")
    print(tables(results["text"], by_text=True))
    for failure in failures:
        print(f"\nNot measured: {failure}")
    if options.out is not None:
        facts = {"machine": machine(), **results, "failures": failures}
        options.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
