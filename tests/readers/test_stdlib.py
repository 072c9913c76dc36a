"""The standard library as documents."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

from plait.readers.stdlib import MODULES, stdlib_documents
from plait.records import Document
from plait.storage.validate import check_document


@cache
def library() -> dict[str, Document]:
    return {document.id: document for document in stdlib_documents()}


def test_there_are_thousands_of_documents_and_none_twice() -> None:
    documents = list(stdlib_documents())
    assert len(documents) > 3000
    assert len({document.id for document in documents}) == len(documents)
    assert len({document.text for document in documents}) == len(documents)


def test_every_document_can_be_stored() -> None:
    for document in library().values():
        check_document(document)


def test_well_known_names_are_present() -> None:
    usual = (
        "json.loads str.casefold random.sample os.walk os.path.join datetime.datetime.strptime subprocess.run sorted"
    )
    assert [name for name in usual.split() if name not in library()] == []
    assert library()["json.loads"].title.startswith("json.loads(s, ")
    assert library()["json.loads"].metadata == {"module": "json", "kind": "function"}
    assert library()["json"].metadata["kind"] == "module"


def test_private_names_and_short_docstrings_are_left_out() -> None:
    assert not [name for name in library() if any(part.startswith("_") for part in name.split("."))]
    assert not [document.id for document in library().values() if len(document.text.split()) < 4]


def test_no_module_is_listed_twice() -> None:
    assert len(set(MODULES)) == len(MODULES)


def test_reading_prints_nothing_and_gives_no_warnings() -> None:
    code = "from plait.readers.stdlib import stdlib_documents; list(stdlib_documents())"
    answer = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (answer.stdout, answer.stderr) == ("", "")
