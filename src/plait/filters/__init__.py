"""Filters: a small language over metadata, compiled to a condition that SQLite can run.

    year >= 2020 and lang in ("en", "de") and not archived

What it has:

- comparisons `= == != <> < <= > >=`, `in (...)`, `like "%x%"`, `is null`, each also with `not`;
- `"x" in tags`, for a field that holds a list;
- a field alone, which is true where the field holds `true`;
- `and`, `or`, `not`, and parentheses; `not` binds tightest, then `and`, then `or`;
- strings in '...' or "..." with the escapes of JSON, numbers, `true`, `false`, `null`; a date is a string;
- fields by name, nested ones by a path (`author.name`), odd names in backticks (`` `content type` ``).

`id`, `title` and `text` are those of the document; a metadata field of the same name is written in backticks.

What it means:

- Every condition is true or false, never unknown. A comparison with a field that is missing or null is false, so
  `not (x = 1)` is true for a document that has no `x`.
- `!=`, `not in` and `not like` are comparisons too: they are true where the field has a value that differs.
- Values are compared with values of their own kind only: `year > "2000"` is false for a year kept as a number.
- `like` takes `%` for any text and `_` for one character, backslash to mean either as itself, and does not tell
  apart upper and lower case of ASCII letters.
"""

from plait.filters.sql import Condition, compile_filter

__all__ = ["Condition", "compile_filter"]
