"""Negatives from a collection of shards are those from an index of the same corpus."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from cluster.collections import config_for, make_documents
from encoders import WordEncoder
from plait.cluster import build
from plait.cluster.build import build_locally
from plait.cluster.manifest import read_manifest
from plait.cluster.mining import WorkerMiner, mine_in_collection
from plait.cluster.sharded_index import open_cluster
from plait.encode.protocol import Encoder
from plait.errors import ConfigError
from plait.readers import documents_from
from plait.train.data.example import Example
from plait.train.data.sources import read_beir
from plait.train.mining.config import MiningConfig
from plait.train.mining.miner import OpenMiner, index_miner

N_PROCESSES = 3


@pytest.fixture
def beir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Documents of very different words: equal scores would be ordered by shard."""
    monkeypatch.setattr(build, "BLOCK_DOCUMENTS", 8)  # several blocks for each process
    folder, documents = tmp_path / "set", make_documents(120)
    (folder / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": one.id, "title": one.title, "text": one.text}) for one in documents]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    judged = documents[:40]
    lines = [json.dumps({"_id": f"q{one.id}", "text": " ".join(one.text.split()[:6])}) for one in judged]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    rows = ["query-id\tcorpus-id\tscore", *(f"q{one.id}\t{one.id}\t1" for one in judged)]
    (folder / "qrels" / "train.tsv").write_text("\n".join(rows) + "\n")
    return folder


def mined(opened: OpenMiner, path: Path, config: MiningConfig, encoder: Encoder | None) -> list[Example]:
    with opened(path, config, encoder) as mine:
        return list(mine(read_beir(Path(config.corpus)), seed=3, on_progress=None))


class CountingEncoder(WordEncoder):
    """Counts the documents that it encodes."""

    n_documents = 0

    def encode_documents(self, texts, *, on_batch=None):  # type: ignore[no-untyped-def]
        self.n_documents += len(texts)
        return super().encode_documents(texts, on_batch=on_batch)


@pytest.mark.parametrize("mode", ["dense", "multi"])
def test_shards_of_three_processes_give_the_negatives_of_an_index(beir: Path, tmp_path: Path, mode: str) -> None:
    config = MiningConfig(corpus=str(beir), mode=mode, n_negatives=12, last_rank=12, n_random=2)
    barrier, errors = threading.Barrier(N_PROCESSES), list[BaseException]()
    encoders = [CountingEncoder() for _ in range(N_PROCESSES)]

    def wait() -> None:
        barrier.wait(120)

    def run(process: int) -> None:
        miner = WorkerMiner(process, N_PROCESSES)
        try:
            miner.build(tmp_path / "shards", config, encoders[process], wait)
        except BaseException as error:
            errors.append(error)
            barrier.abort()
            raise

    threads = [threading.Thread(target=run, args=(process,)) for process in range(N_PROCESSES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(read_manifest(tmp_path / "shards").shards) == N_PROCESSES
    shares = [encoder.n_documents for encoder in encoders]
    assert max(shares) < 0.6 * read_manifest(tmp_path / "shards").n_passages  # nobody encodes the whole corpus
    negatives = mined(WorkerMiner(0, N_PROCESSES).open, tmp_path / "shards", config, WordEncoder())
    wanted = mined(index_miner, tmp_path / "index", config, WordEncoder())
    if mode == "dense":
        assert negatives == wanted
        return
    shared = sum(  # multi vectors are compressed in shards, and are not in a small index
        len({one.id for one in mine.negatives} & {one.id for one in other.negatives})
        for mine, other in zip(negatives, wanted, strict=True)
    )
    assert shared > 0.85 * sum(len(one.negatives) for one in wanted)


@pytest.mark.parametrize("mode", ["bm25", "dense"])
def test_a_collection_that_exists_is_mined_in(beir: Path, tmp_path: Path, mode: str) -> None:
    encoder = WordEncoder()
    build_locally(documents_from([beir / "corpus.jsonl"]), encoder, tmp_path / "big", config_for(encoder, 3))
    config = MiningConfig(corpus=str(beir), mode="dense", n_negatives=4, first_rank=2, last_rank=9)
    with open_cluster(tmp_path / "big", encoder=encoder) as collection:
        examples = read_beir(beir)
        negatives = list(
            mine_in_collection(examples, collection, config, tmp_path, mode=mode, seed=3, on_mined=lambda *_: None)
        )
        with pytest.raises(ConfigError, match="does not have"):
            mine_in_collection(
                examples,
                collection,
                MiningConfig(n_random=1),
                tmp_path,
                mode=mode,
                seed=3,
                on_mined=lambda *_: None,
            )
    assert negatives == mined(index_miner, tmp_path / "index", config, None if mode == "bm25" else encoder)
