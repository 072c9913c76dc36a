"""Documents over HTTP: written when the answer says so, all of an upload or none, and found again by scrolling."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import plait
from plait.serve.limits import Limits
from serve.api.servers import DOCUMENTS, config_of, serving

PATH = "/v1/indexes/fabrics/documents"
LINES = {"content-type": "application/x-ndjson"}


def count(client: TestClient) -> int:
    return int(client.post("/v1/indexes/fabrics/count", json={}).json()["count"])


def finished(client: TestClient, job: dict[str, Any]) -> dict[str, Any]:
    """The job when it has ended."""
    for _ in range(600):
        status: dict[str, Any] = client.get(f"/v1/jobs/{job['id']}").json()
        if status["state"] in ("done", "failed"):
            return status
        time.sleep(0.05)
    raise AssertionError(f"the job did not end: {status}")


def test_an_add_is_durable_when_it_is_answered(client: TestClient, fabrics: Path) -> None:
    new = [{"id": "silk", "text": "Silk shines.", "year": 2020}, {"id": "loom", "text": "A loom."}]
    answer = client.post(PATH, json={"documents": new})
    assert answer.status_code == 200
    assert {name: answer.json()[name] for name in ("added", "updated", "unchanged")} == {
        "added": 1,
        "updated": 1,
        "unchanged": 0,
    }
    with plait.open(fabrics, read_only=True) as index:
        assert "silk" in index
    assert client.get(f"{PATH}/silk").json() == {
        "id": "silk",
        "title": "",
        "text": "Silk shines.",
        "metadata": {"year": 2020},
    }


def test_ids_in_paths_may_have_any_characters(client: TestClient) -> None:
    assert client.get(f"{PATH}/a%2Fb%20c%3Fd").json()["title"] == "Shuttles"
    assert client.delete(f"{PATH}/a%2Fb%20c%3Fd").json() == {"deleted": 1}
    missing = client.get(f"{PATH}/a%2Fb%20c%3Fd")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_document")


def test_an_upload_of_lines_is_added(client: TestClient) -> None:
    lines = "\r\n".join(json.dumps({"id": f"new-{n}", "text": f"Cloth number {n}."}) for n in range(20)) + "\n\n"
    answer = client.post(PATH, content=lines, headers=LINES)
    assert (answer.status_code, answer.json()["added"]) == (200, 20)


@pytest.mark.parametrize(
    ("line", "status", "code"),
    [
        ("{", 400, "invalid_json"),
        ('{"id": "x", "text": "x", "n": NaN}', 400, "invalid_json"),
        ("[1]", 422, "invalid_request"),
        ('{"id": "x"}', 422, "invalid_document"),
        ('{"id": 7, "text": "x"}', 422, "invalid_document"),
        ('{"id": "x", "text": "x", "deep": ' + "[" * 100 + "]" * 100 + "}", 422, "too_deep"),
        ('{"id": "x", "text": "' + "x" * 1200 + '"}', 413, "line_too_long"),
    ],
)
def test_nothing_of_an_upload_is_added_if_a_line_is_wrong(fabrics: Path, line: str, status: int, code: str) -> None:
    config = config_of(fabrics, limits=Limits(max_line_bytes=1000))
    with serving(config) as client:
        body = json.dumps({"id": "good", "text": "Good."}) + "\n" + line
        answer = client.post(PATH, content=body, headers=LINES)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert "line" in answer.json()["error"]["message"]
        assert count(client) == len(DOCUMENTS)
        assert config.spool_dir is not None
        assert list(config.spool_dir.iterdir()) == []


def test_a_long_write_is_a_job(fabrics: Path) -> None:
    with serving(config_of(fabrics, sync_documents=10)) as client:
        new = [{"id": f"new-{n}", "text": f"Cloth number {n}."} for n in range(20)]
        answer = client.post(PATH, json={"documents": new})
        assert answer.status_code == 202
        job = answer.json()["job"]
        assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
        assert finished(client, job)["result"]["added"] == 20
        assert count(client) == len(DOCUMENTS) + 20


def test_a_client_may_ask_for_a_job(client: TestClient) -> None:
    answer = client.post(
        PATH, json={"documents": [{"id": "x", "text": "x"}]}, headers={"prefer": "respond-async, wait=1"}
    )
    assert answer.status_code == 202
    assert finished(client, answer.json()["job"])["state"] == "done"
    compacted = client.post("/v1/indexes/fabrics/compact", json={})
    assert compacted.status_code == 202
    assert finished(client, compacted.json()["job"])["state"] == "done"


def test_an_idempotency_key_repeats_the_answer(client: TestClient) -> None:
    headers = {"idempotency-key": "one"}
    first = client.post(f"{PATH}/delete", json={"ids": ["loom"]}, headers=headers)
    again = client.post(f"{PATH}/delete", json={"ids": ["loom"]}, headers=headers)
    assert first.json() == again.json() == {"deleted": 1}
    assert "idempotency-replayed" in again.headers
    other = client.post(f"{PATH}/delete", json={"ids": ["needle"]}, headers=headers)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_conflict")
    assert client.get(f"{PATH}/needle").status_code == 200
    assert client.post(f"{PATH}/delete", json={"ids": ["x"]}, headers={"idempotency-key": "a b"}).status_code == 422


def test_deletes_and_changes(client: TestClient) -> None:
    assert client.patch(PATH, json={"changes": {"loom": {"year": 1785}}}).json() == {"changed": 1}
    assert client.get(f"{PATH}/loom").json()["metadata"]["year"] == 1785
    unknown = client.patch(PATH, json={"changes": {"nothing": {"year": 1}}})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (422, "invalid_document")
    assert client.patch(PATH, json={"changes": {"loom": {"text": "x"}}}).status_code == 422
    assert client.post(f"{PATH}/delete", json={"filter": "year = 2021"}).json() == {"deleted": 2}
    assert client.post(f"{PATH}/delete", json={"filter": "year ="}).status_code == 422
    assert client.post(f"{PATH}/delete", json={}).status_code == 422


def test_a_scroll_returns_every_document_once_while_others_change(client: TestClient) -> None:
    first = client.get(PATH, params={"limit": 2}).json()
    client.post(PATH, json={"documents": [{"id": "silk", "text": "Silk."}]})
    client.patch(PATH, json={"changes": {first["documents"][0]["id"]: {"seen": True}}})
    client.post(f"{PATH}/delete", json={"ids": [first["documents"][1]["id"]]})  # the document of the cursor
    assert finished(client, client.post("/v1/indexes/fabrics/compact", json={}).json()["job"])["state"] == "done"
    seen, cursor = [one["id"] for one in first["documents"]], first["cursor"]
    while cursor is not None:
        page = client.get(PATH, params={"limit": 2, "cursor": cursor}).json()
        seen, cursor = seen + [one["id"] for one in page["documents"]], page["cursor"]
    stayed = [str(document["id"]) for document in DOCUMENTS[2:]]
    assert [id for id in seen if id in stayed] == stayed
    assert "silk" in seen


def test_a_cursor_fits_its_scroll_alone(client: TestClient) -> None:
    cursor = client.get(PATH, params={"limit": 1}).json()["cursor"]
    changed = ("A" if cursor[0] != "A" else "B") + cursor[1:]
    for params in ({"cursor": changed}, {"cursor": cursor, "filter": "year > 0"}, {"cursor": "x"}, {"cursor": "é"}):
        answer = client.get(PATH, params=params)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_cursor")


def test_documents_by_id_keep_their_order(client: TestClient) -> None:
    documents = client.post(f"{PATH}/get", json={"ids": ["needle", "nothing", "loom"]}).json()["documents"]
    assert [one and one["id"] for one in documents] == ["needle", None, "loom"]


def test_indexes_are_created_and_dropped_below_the_data_folder_only(client: TestClient, fabrics: Path) -> None:
    made = client.post("/v1/indexes", json={"name": "notes", "language": "de", "chunking": {"size": 100}})
    assert made.status_code == 201
    assert client.post("/v1/indexes", json={"name": "notes"}).status_code == 409
    assert (fabrics.parent / "data" / "notes").is_dir()
    info = client.get("/v1/indexes/notes").json()
    assert (info["documents"], info["language"]) == (0, "de")
    assert [one["name"] for one in client.get("/v1/indexes").json()["indexes"]] == ["fabrics", "notes"]
    assert client.delete("/v1/indexes/notes").json() == {"dropped": "notes"}
    assert not (fabrics.parent / "data" / "notes").exists()
    refused = client.delete("/v1/indexes/fabrics")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_allowed")
    for name in ("../x", "a/b", "", "A", "x" * 65, ".x"):
        assert client.post("/v1/indexes", json={"name": name}).status_code == 422
    unknown = client.post("/v1/indexes", json={"name": "other", "model": "/etc"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_model")


def test_without_a_data_folder_no_index_is_created(fabrics: Path) -> None:
    with serving(replace(config_of(fabrics), data_dir=None)) as client:
        assert client.post("/v1/indexes", json={"name": "notes"}).status_code == 403


def test_info_describes_the_index(client: TestClient) -> None:
    info = client.get("/v1/indexes/fabrics").json()
    assert info["documents"] == len(DOCUMENTS)
    assert info["kinds"]["dense"] > 0
    assert {"hybrid", "bm25", "dense"} <= set(info["modes"])
    assert info["model"] == "plait-small"
