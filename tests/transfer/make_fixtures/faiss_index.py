"""Makes the .faiss fixtures. Needs faiss-cpu."""

from __future__ import annotations

import sys
from pathlib import Path

import faiss
import numpy as np

from transfer.make_fixtures.corpus import DIM, dense_vector, documents


def main(fixtures: Path) -> None:
    vectors = np.array([dense_vector(str(one["text"])) for one in documents()])
    ids = np.arange(len(vectors)) * 10 + 5
    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlatIP(DIM)
    flat.add(vectors)
    faiss.write_index(flat, str(fixtures / "flat-ip.faiss"))
    l2 = faiss.IndexFlatL2(DIM)
    l2.add(vectors * np.linspace(1, 2, len(vectors), dtype=np.float32)[:, None])
    faiss.write_index(l2, str(fixtures / "flat-l2.faiss"))
    ivf = faiss.IndexIVFFlat(faiss.IndexFlatIP(DIM), DIM, 4, faiss.METRIC_INNER_PRODUCT)
    ivf.train(vectors)
    ivf.add_with_ids(vectors, ids)
    faiss.write_index(ivf, str(fixtures / "ivf.faiss"))
    mapped = faiss.IndexIDMap2(faiss.IndexFlatIP(DIM))
    mapped.add_with_ids(vectors, ids)
    faiss.write_index(mapped, str(fixtures / "idmap.faiss"))
    coded = faiss.IndexScalarQuantizer(DIM, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
    coded.train(vectors)
    coded.add(vectors)
    faiss.write_index(coded, str(fixtures / "sq8.faiss"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
