"""The bundled model and the real command line, from files to search results, as a new user would use them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import plait

TEXTS = {
    "loom": "A loom holds threads under tension so that others can be passed through them to make cloth.",
    "bread": "Dough rises because yeast turns sugar into gas, which the gluten holds.",
    "tide": "The moon pulls the sea towards it, so the water at the coast comes and goes twice a day.",
    "heart": "Blood is pushed through the body by a muscle about the size of a fist.",
    "stars": "Hydrogen is fused to helium in the core, and the energy leaves as light.",
    "tax": "An invoice must name the rate and the amount that is owed to the treasury.",
}
# The queries share no words with their answers.
QUESTIONS = {
    "how do you weave fabric": "loom",
    "why does baking need fermentation": "bread",
    "what makes the ocean level change": "tide",
    "which organ circulates oxygen": "heart",
    "why does the sun shine": "stars",
    "VAT on a bill": "tax",
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> plait.Index:
    index = plait.open(tmp_path_factory.mktemp("bundled") / "index", create=True)
    index.add([{"id": id, "text": text, "words": len(text.split())} for id, text in TEXTS.items()])
    return index


# With reciprocal ranks one common word ("makes" and "make") may lift another document above the answer, so hybrid may
# miss one.
@pytest.mark.parametrize(("mode", "n_right"), [("dense", 6), ("multi", 6), ("hybrid", 5)])
def test_queries_retrieve_their_answers_without_common_words(index: plait.Index, mode: str, n_right: int) -> None:
    top_ids = {question: index.search(question, k=1, mode=mode)[0].id for question in QUESTIONS}
    assert sum(top_ids[question] == answer for question, answer in QUESTIONS.items()) >= n_right


def test_the_five_lines_of_the_readme_work(tmp_path: Path) -> None:
    index = plait.open(tmp_path / "my-index", create=True)
    index.add([{"id": "1", "text": "Vectors are woven.", "year": 2024}])
    hits = index.search("how are vectors combined", k=5, filter="year >= 2020")
    assert [(hit.id, hit.text) for hit in hits] == [("1", "Vectors are woven.")]


def test_encoded_arrays_can_be_scored_directly() -> None:
    encoder = plait.load_model()
    embeddings = encoder.encode_documents(["Vectors are woven.", "Bread is baked."])
    assert embeddings.dense is not None
    assert embeddings.multi is not None
    query = encoder.encode_queries(["weaving"]).multi
    assert query is not None
    scores = plait.maxsim(query[0], embeddings.multi)
    assert scores[0] > scores[1]


def run(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "plait", *map(str, arguments)]
    answer = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)
    assert answer.returncode == code, answer.stderr
    return answer


def test_the_command_line_indexes_a_file_and_searches_it(tmp_path: Path) -> None:
    source, index = tmp_path / "texts.jsonl", tmp_path / "index"
    source.write_text("".join(json.dumps({"id": id, "text": text}) + "\n" for id, text in TEXTS.items()))
    run("index", source, "--to", index)
    answer = run("search", index, "how do you weave fabric", "-k", "1", "--json")
    assert json.loads(answer.stdout)["id"] == "loom"
    run("check", index)
    run("delete", index, "loom")
    assert json.loads(run("info", index, "--json").stdout)["documents"] == len(TEXTS) - 1
    run("search", index, "cloth", "--mode", "bm25", code=1)


def test_the_error_of_a_wrong_model_names_both_models(tmp_path: Path) -> None:
    from encoders import WordEncoder

    plait.open(tmp_path / "index", create=True, encoder=WordEncoder(name="other")).close()
    answer = run("search", tmp_path / "index", "anything", "--model", plait.load_model().name, code=2)
    assert "other-16" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_searching_loads_no_torch() -> None:
    code = "import plait, sys; plait.load_model().encode_queries(['x']); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
