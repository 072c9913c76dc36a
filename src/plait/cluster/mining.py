"""Mining of hard negatives in collections of shards: in one that exists, and in one that the processes of a training
run build together, each a share of the blocks and the shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from plait.cluster.build import BuildConfig, blocks_of, build_shard, encode_block, finish, fit_codebook
from plait.cluster.sharded_index import ShardedIndex, open_cluster
from plait.encode.chunking import with_title
from plait.encode.load import LazyEncoder
from plait.encode.protocol import Encoder
from plait.errors import ConfigError
from plait.readers import documents_from
from plait.train.data.example import Example
from plait.train.mining.config import MiningConfig
from plait.train.mining.miner import Miner
from plait.train.mining.mining_rounds import OnMined, mine_examples
from plait.train.mining.negatives import Rank, corpus_path, draw_negatives, read_corpus

BITS = 4  # of the codes of multi vectors: the collection is temporary, and ranks should be those of the vectors


def mine_in_collection(
    examples: Iterable[Example],
    collection: ShardedIndex,
    config: MiningConfig,
    folder: Path,
    *,
    mode: str,
    seed: int,
    on_mined: OnMined,
) -> Iterator[Example]:
    """The examples with negatives from a collection whose ids are those of the examples. As `mine_examples`, which
    needs a corpus; `folder` keeps the scores of a teacher."""
    if config.n_random:
        raise ConfigError(
            f"n_random is {config.n_random}, but random negatives are drawn from a list of all ids, which a collection "
            f"of shards does not have; leave it out, or mine in the corpus"
        )
    rank = rank_in(collection, config.last_rank, mode=mode)

    @contextmanager
    def opened(path: Path, config: MiningConfig, encoder: Encoder | None) -> Iterator[Miner]:
        del path, encoder
        yield partial(draw_negatives, rank=rank, texts=CollectionTexts(collection), config=config)

    return mine_examples(
        examples,
        config,
        folder,
        searcher=str(collection.folder),
        encoder=None,
        seed=seed,
        on_mined=on_mined,
        open_miner=opened,
    )


def rank_in(collection: ShardedIndex, last_rank: int, *, mode: str) -> Rank:
    def rank(queries: Sequence[str]) -> list[list[str]]:
        hits = collection.search_many(queries, last_rank, mode=mode, syntax=False)
        return [[hit.id for hit in of_query] for of_query in hits]

    return rank


class CollectionTexts:
    """The texts of a collection by id, title first, as they are trained on."""

    def __init__(self, collection: ShardedIndex) -> None:
        self._collection = collection

    def get(self, ids: Sequence[str]) -> list[str | None]:
        documents = self._collection.get(ids)
        return [None if one is None else with_title(one.title, one.text) for one in documents]

    def ids(self) -> list[str]:
        raise ConfigError("a collection of shards has no list of all ids; mine without random negatives")


@dataclass(frozen=True, slots=True)
class WorkerMiner:
    """The corpus of a recipe as a collection that all processes of a run build in a folder which they share. One
    process is as good as an index; with several, each encodes its share of the corpus."""

    process: int
    n_processes: int

    def build(self, path: Path, config: MiningConfig, encoder: Encoder, wait: Callable[[], None]) -> None:
        """Every process calls this."""
        source = LazyEncoder(None, encoder, precision=None, n_threads=1)
        settings = BuildConfig.of(source, n_shards=self.n_processes, bits=BITS)
        corpus = corpus_path(config.corpus)
        for number, block in enumerate(blocks_of(documents_from([corpus]))):
            if number % self.n_processes == self.process:
                encode_block(path, settings, encoder, block)
        wait()
        blocks = [encode_block(path, settings, encoder, block)[0] for block in blocks_of(documents_from([corpus]))]
        if self.process == 0:
            fit_codebook(path, settings, blocks)
        wait()
        codec = fit_codebook(path, settings, blocks)
        build_shard(path, settings, blocks, self.process, codec)
        wait()
        if self.process == 0:
            records = [build_shard(path, settings, blocks, shard, codec)[0] for shard in range(self.n_processes)]
            finish(path, settings, records, codec, encoder)
        wait()

    @contextmanager
    def open(self, path: Path, config: MiningConfig, encoder: Encoder | None) -> Iterator[Miner]:
        """Mines in what was built."""
        with open_cluster(path, encoder=encoder) as collection, read_corpus(config.corpus) as texts:
            rank = rank_in(collection, config.last_rank, mode=config.mode)
            yield partial(draw_negatives, rank=rank, texts=texts, config=config)
