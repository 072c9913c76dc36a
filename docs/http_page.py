"""docs/reference/http.md: every route of the server with its parameters, answers and an example, from the OpenAPI
document. tests/docs/test_http_reference.py runs the examples."""

from __future__ import annotations

import ast
import json
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reference_pages import fields_of, table

from plait.serve.routes.common import errors as documented_errors

EVERYWHERE = {int(status) for status in documented_errors()}  # statuses that every route may have
SOURCES = Path(__file__).parents[1] / "src" / "plait" / "serve"
SECTIONS = {
    "search": "Search",
    "documents": "Documents",
    "indexes": "Indexes",
    "models": "Models",
    "TEI": "The shapes of text-embeddings-inference",
    "server": "The server",
}
# What each code of an error means. A code of the sources that is not here is an error of `make docs`.
CODES = {
    "bad_request": "the request cannot be read",
    "body_timeout": "the body did not arrive in time",
    "body_too_large": "the body is beyond `max_body_bytes` or `max_upload_bytes`",
    "cancelled": "the client went away; nobody reads this answer",
    "idempotency_conflict": "the `Idempotency-Key` was used for another request",
    "incomplete": "an upload ended before its end",
    "index_error": "the index cannot be read; the log says why",
    "index_exists": "there is an index of this name",
    "internal": "a fault of the server; the log has the request id",
    "invalid_cursor": "the cursor of a scroll is wrong, or of another filter",
    "invalid_document": "a document has a wrong id, text or field",
    "invalid_filter": "the filter cannot be read; the message marks the place",
    "invalid_input": "a value cannot be used, such as vectors of another size",
    "invalid_json": "the body is not JSON in UTF-8",
    "invalid_option": "an option or a parameter is unknown or out of its range",
    "invalid_query": "the query cannot be read",
    "invalid_request": "a field is missing or of a wrong type",
    "limit_exceeded": "the request is beyond a limit of the server",
    "line_too_long": "a line of an upload is beyond `max_line_bytes`",
    "locked": "another program writes to the index; try again",
    "method_not_allowed": "the path has other methods",
    "missing_scope": "the key does not have the scope",
    "model_error": "a model cannot be used; the log says why",
    "not_allowed": "the key or the configuration of the server forbids it",
    "not_found": "there is nothing at this path",
    "overloaded": "too many requests wait; `Retry-After` has seconds",
    "read_only": "the index or the server cannot be written",
    "timeout": "the deadline has passed",
    "too_deep": "the JSON is nested too deeply",
    "unauthorized": "there is no key, or it is wrong or expired",
    "unavailable": "the server starts or stops; `Retry-After` has seconds",
    "unknown_document": "there is no document of this id",
    "unknown_index": "there is no index of this name, or the key may not see it",
    "unknown_job": "there is no such job, it was forgotten, or it belongs to another key",
    "unknown_model": "the server does not offer this model",
    "unsupported_media_type": "the `Content-Type` is not JSON",
    "wrong_host": "the `Host` header is not a name of this server; see `allowed_hosts`",
    "wrong_origin": "a page of another site has sent the request; see `allowed_origins`",
}
HEAD = """# HTTP

This page is made from the OpenAPI document of the server (`make docs`), which a running server has at
`/openapi.json`. A test runs the examples. [Serve indexes](../guides/serve.md) explains the server,
[from laptop to team server](../guides/deploy.md) how to run one for others.

With keys, send one as `Authorization: Bearer KEY` or `X-API-Key: KEY`. Searching needs the scope `read`, changing
documents `write`, creating and dropping indexes `admin`. `X-Request-ID` is returned and logged; `traceparent`
continues a trace.

Writes are answered after their commit. A long one, or one with `Prefer: respond-async`, is answered with 202 and a job:
ask `/v1/jobs/{id}`, which is in the header `Location`, until its `state` is `done` or `failed`."""
ERRORS = """## Errors

Every error has one shape:

```json
{"error": {"code": "invalid_filter", "message": "...", "request_id": "5f1c0e7ab24d9c31"}}
```

Programs compare the code, people read the message. Any route may answer with the statuses
%s; a route above names those that it has in addition."""
LIMITS = """## Limits

A request beyond one of them gets 413 (bytes) or 422 before any work begins. `[limits]` of the configuration changes
them."""


def http_page() -> str:
    """The page."""
    document = openapi()
    parts = [HEAD]
    for tag, title in SECTIONS.items():
        routes = [route for route in routes_of(document) if route[2]["tags"][0] == tag]
        parts.append(f"## {title}")
        parts += [section(document, *route) for route in routes]
    parts += [ERRORS % ", ".join(map(str, sorted(EVERYWHERE))), error_table(), LIMITS, limit_table()]
    return "\n\n".join(parts) + "\n"


def openapi() -> dict[str, Any]:
    """The document of a server; nothing is started."""
    from plait.serve.app import create_app
    from plait.serve.config import ServeConfig
    from plait.serve.runtime.runtime import ServeRuntime

    config = ServeConfig(mcp=False, page=False)
    document: dict[str, Any] = create_app(config, ServeRuntime(config)).openapi()
    return document


def routes_of(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            yield method.upper(), path, route


def section(document: Mapping[str, Any], method: str, path: str, route: Mapping[str, Any]) -> str:
    """One route."""
    parts = [f"### {method} {path}", paragraph(f"{route['summary']}. {route.get('description', '')}")]
    if parameters := [row_of_parameter(document, one) for one in route.get("parameters", [])]:
        parts.append(table(["parameter", "in", "type", "meaning"], parameters))
    content = route.get("requestBody", {}).get("content", {})
    if "application/json" in content and (rows := rows_of_body(document, content["application/json"]["schema"])):
        parts.append(table(["field of the body", "type", "default", "meaning"], rows))
    parts.append(paragraph(f"Answers: {'; '.join(answers(document, route))}."))
    parts.append(f"```sh\n{example(document, method, path, route)}\n```")
    return "\n\n".join(parts)


def paragraph(text: str) -> str:
    """A paragraph, broken at the width of the page."""
    return textwrap.fill(" ".join(text.split()), 126, break_long_words=False, break_on_hyphens=False)


def row_of_parameter(document: Mapping[str, Any], one: Mapping[str, Any]) -> tuple[str, str, str, str]:
    schema = one["schema"]
    default = f" Default `{json.dumps(schema['default'])}`." if schema.get("default") is not None else ""
    name = (
        "Idempotency-Key"
        if one["name"] == "idempotency-key"
        else one["name"].title()
        if is_header(one)
        else one["name"]
    )
    meaning = (one.get("description") or "") + default
    return f"`{name}`{'' if one.get('required') else ' (optional)'}", one["in"], kind(document, schema), meaning.strip()


def is_header(one: Mapping[str, Any]) -> bool:
    return bool(one["in"] == "header")


def rows_of_body(document: Mapping[str, Any], schema: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    resolved = resolve(document, schema)
    required = resolved.get("required", [])
    rows = []
    for name, field in resolved.get("properties", {}).items():
        default = (
            "required" if name in required else json.dumps(field["default"]) if field.get("default") is not None else ""
        )
        shown = f"`{default}`" if default and default != "required" else default
        rows.append((f"`{name}`", kind(document, field), shown, " ".join(field.get("description", "").split())))
    return rows


def resolve(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    schema_named: Mapping[str, Any] = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema_named


def kind(document: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """The type of a value in words; null is left out, since it means the default."""
    if "$ref" in schema:
        fields = resolve(document, schema).get("properties", {})
        return f"object ({', '.join(fields)})" if fields else "object"
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(kind(document, one) for one in options if one.get("type") != "null"))
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if schema.get("type") == "array":
        return f"list of {kind(document, schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def answers(document: Mapping[str, Any], route: Mapping[str, Any]) -> Iterator[str]:
    """The statuses that are special to a route, with the fields of the answers that are not errors."""
    for status, response in sorted(route["responses"].items()):
        if int(status) < 300:
            schema = response.get("content", {}).get("application/json", {}).get("schema", {})
            yield f"{status}{shape(document, schema)}"
        elif int(status) not in EVERYWHERE:
            yield f"{status} {response['description'].rstrip('.').lower()}"


def shape(document: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    resolved = resolve(document, schema)
    if resolved.get("type") == "array":
        return f" with a {kind(document, resolved)}"
    fields = resolved.get("properties", {})
    return f" with {', '.join(f'`{name}`' for name in fields)}" if fields else ""


def example(document: Mapping[str, Any], method: str, path: str, route: Mapping[str, Any]) -> str:
    """The request with curl, with the examples of the schema."""
    query = ""
    for one in route.get("parameters", []):
        values = one["schema"].get("examples")
        if one["in"] == "path":
            path = path.replace(f"{{{one['name']}}}", values[0])
        elif one["in"] == "query" and one.get("required"):
            query = f"?{one['name']}={values[0].replace(' ', '+')}"
    words = ["curl", *(["-X", method] if method in ("DELETE", "PATCH") else []), f"localhost:8765{path}{query}"]
    content = route.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        body = resolve(document, content["application/json"]["schema"])["examples"][0]
        words += ["-H", "content-type: application/json", "-d", json.dumps(body)]
    lines = [shlex.join(words)]
    if lined := content.get("application/x-ndjson"):
        data = ["-H", "content-type: application/x-ndjson", "--data-binary", lined["example"].strip()]
        lines.append(shlex.join([*words[:2], *data]))
    return "\n".join(lines)


def codes_of_sources() -> dict[str, int]:
    """Each code of an error with its status, as the sources of the server raise it."""
    from plait.serve import errors

    statuses = {code: status for _, status, code in errors._KNOWN} | {
        code: status for _, status, code, _ in errors._HIDDEN
    }
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ApiError":
                status, code = (one.value if isinstance(one, ast.Constant) else None for one in node.args[:2])
                if isinstance(status, int) and isinstance(code, str):
                    statuses[code] = status
    return statuses | {"not_found": 404, "method_not_allowed": 405, "bad_request": 400}


def error_table() -> str:
    statuses = codes_of_sources()
    if unequal := set(statuses) ^ set(CODES):
        raise SystemExit(f"docs/http_page.py does not describe the errors of the server: {', '.join(sorted(unequal))}")
    rows = sorted((str(status), f"`{code}`", CODES[code]) for code, status in statuses.items())
    return table(["status", "code", "meaning"], rows)


def limit_table() -> str:
    from plait.serve.limits import Limits

    return table(["limit", "default", "of"], [(f"`{name}`", default, of) for name, default, of in fields_of(Limits)])
